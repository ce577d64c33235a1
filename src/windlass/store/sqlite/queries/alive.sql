-- A worker that was declared dead while it was frozen claims nothing: its jobs would only have to be rescued.   :worker
SELECT (SELECT seen_at FROM windlass_installation) FROM windlass_workers WHERE id = :worker AND NOT dead

-- Give back one job of a dead worker with the least that can be written: rescue.sql was refused for it. What is remembered
-- of its attempts stays as it is, and nothing follows its end.   :id   :max_crashes   :now
UPDATE windlass_jobs
   SET status = iif(crashes + 1 >= :max_crashes, 'dead', 'queued'),
       token = NULL, worker = NULL, attempt = max(attempt - 1, 0), crashes = crashes + 1, rescues = rescues + 1,
       reason = iif(crashes + 1 >= :max_crashes, 'crashed', NULL),
       finished_at = iif(crashes + 1 >= :max_crashes, :now, NULL),
       updated_at = :now
 WHERE id = :id AND status = 'running'
   AND worker IN (
        SELECT holder.worker
          FROM (SELECT DISTINCT worker FROM windlass_jobs WHERE status = 'running') AS holder
          LEFT JOIN windlass_workers AS workers ON workers.id = holder.worker
         WHERE workers.id IS NULL OR workers.dead)
RETURNING status, limits

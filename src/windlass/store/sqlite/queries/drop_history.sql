-- One page of what retention has let go.
DELETE FROM windlass_history
 WHERE rowid IN (SELECT rowid FROM windlass_history WHERE finished_at < :now - :history LIMIT :page)

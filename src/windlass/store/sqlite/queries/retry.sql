-- A failed job is due now.
UPDATE windlass_jobs
   SET status = 'queued', run_at = :now, updated_at = :now
 WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

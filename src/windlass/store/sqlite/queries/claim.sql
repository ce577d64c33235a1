-- Take the jobs that due.sql named, in the same transaction: BEGIN IMMEDIATE lets no other writer in between.
--
--   :ids a JSON array   :worker   :token   :now
UPDATE windlass_jobs
   SET status = 'running', token = :token, fence = fence + 1, worker = :worker, attempt = attempt + 1,
       claimed_at = :now, started_at = :now, updated_at = :now
 WHERE id IN (SELECT value FROM json_each(:ids)) AND status IN ('queued', 'failed')

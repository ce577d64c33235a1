-- The jobs that these created and that have not ended. Those that run are asked to stop; the others are the answer.
--   ?1 [id]   ?2 now
UPDATE windlass_jobs SET cancel_requested = 1, updated_at = ?2
 WHERE parent IN (SELECT value FROM json_each(?1)) AND status = 'running'
-- then
SELECT id FROM windlass_jobs
 WHERE parent IN (SELECT value FROM json_each(?1)) AND status IN ('queued', 'failed', 'waiting')

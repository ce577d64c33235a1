-- What these jobs waited for is there, or cannot come.   ?1 [id]   ?2 now
UPDATE windlass_jobs SET status = 'queued', run_at = ?2, updated_at = ?2, reason = NULL
 WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'waiting'
RETURNING id, queue

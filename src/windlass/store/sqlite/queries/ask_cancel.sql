-- Ask the holder of a running job to stop; asking again changes nothing.   ?1 [id]   ?2 now
UPDATE windlass_jobs SET cancel_requested = 1, updated_at = ?2 WHERE id = ?1 ->> 0 AND status = 'running'
RETURNING id

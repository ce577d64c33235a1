-- Somebody waits for these jobs: their end changes more than themselves.   ?1 [id]   ?2 now
UPDATE windlass_jobs SET followed = 1 WHERE id IN (SELECT value FROM json_each(?1))
RETURNING id, status

-- Ask the holder of a running job to stop; asking again changes nothing.   $1 [id]
UPDATE windlass.jobs SET cancel_requested = true, updated_at = windlass.now()
 WHERE id = (CAST($1 AS json) ->> 0)::uuid AND status = 'running'
RETURNING id

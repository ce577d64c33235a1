-- Ask the holder of a running job to stop; asking again changes nothing.
UPDATE windlass_jobs SET cancel_requested = 1, updated_at = :now WHERE id = :id AND status = 'running'

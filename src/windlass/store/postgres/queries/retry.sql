-- An operator makes a failed job due now.   $1 id   $2 the states that allow it
UPDATE windlass.jobs SET status = 'queued', run_at = windlass.now(), updated_at = windlass.now()
 WHERE id = $1 AND status = ANY ($2::text[])
RETURNING status

-- A dead job starts over under its own id: attempts and crashes from zero, errors and fence kept.   $1 id   $2 states
UPDATE windlass.jobs
   SET status = 'queued', run_at = windlass.now(), updated_at = windlass.now(), attempt = 0, crashes = 0, rescues = 0,
       reason = NULL, finished_at = NULL, cancel_requested = false
 WHERE id = $1 AND status = ANY ($2::text[])
RETURNING status

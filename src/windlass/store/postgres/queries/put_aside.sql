-- End a job with the least that can be written, under its lease: what it left behind could not be stored, or could not be
-- read. Its history of attempts and its error stay as they are.   $1 id   $2 token   $3 reason
UPDATE windlass.jobs
   SET status = 'dead', token = NULL, worker = NULL, reason = $3, finished_at = windlass.now(), updated_at = windlass.now()
 WHERE id = $1 AND token = $2
RETURNING limits

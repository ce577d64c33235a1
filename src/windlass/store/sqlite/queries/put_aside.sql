-- End a job with the least that can be written, under its lease: what it left behind could not be stored, or could not be
-- read. Its history of attempts and its error stay as they are.   :id, :token the lease   :reason   :now
UPDATE windlass_jobs
   SET status = 'dead', token = NULL, worker = NULL, reason = :reason, finished_at = :now, updated_at = :now
 WHERE id = :id AND token = :token
RETURNING limits

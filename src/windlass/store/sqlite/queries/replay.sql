-- A dead job starts over: attempts and crashes count from zero, the errors and the fence stay. A request to cancel that
-- came before its death is answered by it.
UPDATE windlass_jobs
   SET status = 'queued', run_at = :now, updated_at = :now, attempt = 0, crashes = 0, rescues = 0, cancel_requested = 0,
       reason = NULL, finished_at = NULL
 WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

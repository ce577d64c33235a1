-- Give back one job of a dead worker with the least that can be written: rescue.sql was refused for it. What is remembered
-- of its attempts stays as it is, and nothing follows its end.   $1 id   $2 max crashes
UPDATE windlass.jobs
   SET status = CASE WHEN jobs.crashes + 1 >= $2::int THEN 'dead' ELSE 'queued' END,
       token = NULL, worker = NULL, attempt = greatest(jobs.attempt - 1, 0), crashes = jobs.crashes + 1,
       rescues = jobs.rescues + 1,
       reason = CASE WHEN jobs.crashes + 1 >= $2::int THEN 'crashed' END,
       finished_at = CASE WHEN jobs.crashes + 1 >= $2::int THEN windlass.now() END,
       updated_at = windlass.now()
 WHERE jobs.id = $1 AND jobs.status = 'running'
   AND jobs.worker = ANY (ARRAY (SELECT id FROM windlass.workers WHERE dead))
RETURNING jobs.status, jobs.limits

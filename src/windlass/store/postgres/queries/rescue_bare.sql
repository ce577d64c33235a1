-- Give back one job of a dead worker with the least that can be written: rescue.sql was refused for it. What is remembered
-- of its attempts stays as it is, and nothing follows its end.
--
--   $1 id   $2 max crashes   $3 crash_counts and $4 blames as in rescue.sql
WITH verdict AS MATERIALIZED (
    SELECT jobs.token, jobs.crashes + $4::boolean::int AS crashes,
           CASE WHEN jobs.crashes + $4::boolean::int >= $2::int THEN 'crashed'
                WHEN $3::boolean AND jobs.attempt >= jobs.max_attempts THEN 'exhausted' END AS reason
      FROM windlass.jobs
     WHERE jobs.id = $1 AND jobs.status = 'running'
       AND jobs.worker = ANY (ARRAY (SELECT id FROM windlass.workers WHERE dead))
       FOR UPDATE
)
UPDATE windlass.jobs
   SET status = CASE WHEN verdict.reason IS NULL THEN 'queued' ELSE 'dead' END,
       token = NULL, worker = NULL, attempt = greatest(jobs.attempt - (NOT $3::boolean)::int, 0),
       crashes = verdict.crashes, rescues = jobs.rescues + 1, reason = verdict.reason,
       finished_at = CASE WHEN verdict.reason IS NOT NULL THEN windlass.now() END,
       updated_at = windlass.now()
  FROM verdict
 WHERE jobs.id = $1 AND jobs.token = verdict.token
RETURNING jobs.status, jobs.limits

-- Rescue, step two: give back the jobs of workers that are dead, a page at a time and without waiting. The row is taken
-- by (worker, token) as it is now, never by a list that was read earlier: a job that was finished in between is not
-- there any more. The attempt is given back; run_at stays, so that the job keeps its place: the rescan of every worker
-- looks below its floor. It was due, and is: also where the clock was set back since.
--
-- A crash is counted against every job that may be guilty: not against one that already was a suspect on a worker that
-- runs suspects in processes of their own, for such a job cannot have killed its worker. All deaths count as rescues.
--
--   $1 max crashes   $2 max rescues   $3 page   $4 jobs   $5 only these (true), or all but these (false)
--   $6 whether a job keeps the attempt that was interrupted, and is dead when it was the last one
--   $7 whether a crash is counted at all: after an outage silence says nothing about jobs
WITH orphan AS MATERIALIZED (
    SELECT jobs.id, jobs.token, jobs.rescues + 1 AS rescues,
           jobs.crashes + CASE WHEN NOT $7::boolean OR jobs.crashes > 0 AND coalesce(
               (SELECT isolates FROM windlass.workers WHERE workers.id = jobs.worker), false) THEN 0 ELSE 1 END AS crashes,
           $6::boolean AND jobs.attempt >= jobs.max_attempts AS exhausted
      FROM windlass.jobs
     WHERE jobs.status = 'running'
       -- An array, so that the index is entered once per dead worker and never walked over the entries of the living.
       AND jobs.worker = ANY (ARRAY (SELECT id FROM windlass.workers WHERE dead))
       AND (jobs.id = ANY ($4::uuid[])) = $5::boolean
     LIMIT $3::int
       FOR UPDATE SKIP LOCKED
), verdict AS MATERIALIZED (
    SELECT orphan.*,
           CASE WHEN orphan.crashes >= $1::int OR orphan.rescues >= $2::int THEN 'crashed'
                WHEN orphan.exhausted THEN 'exhausted' END AS reason
      FROM orphan
)
UPDATE windlass.jobs
   SET status = CASE WHEN verdict.reason IS NULL THEN 'queued' ELSE 'dead' END,
       token = NULL, worker = NULL, run_at = least(jobs.run_at, windlass.now()),
       attempt = greatest(jobs.attempt - (NOT $6::boolean)::int, 0),
       crashes = verdict.crashes, rescues = verdict.rescues, reason = verdict.reason,
       finished_at = CASE WHEN verdict.reason IS NOT NULL THEN windlass.now() END,
       updated_at = windlass.now(),
       error = windlass.crash(jobs.attempt),
       attempts = windlass.remember(jobs.attempts, json_build_object(
           'attempt', jobs.attempt, 'fence', jobs.fence, 'worker', jobs.worker, 'started_at', jobs.started_at,
           'finished_at', windlass.now(), 'outcome', 'crashed', 'error', windlass.crash(jobs.attempt)))
  FROM verdict
 WHERE jobs.id = ANY (ARRAY[verdict.id]) AND jobs.token = verdict.token
RETURNING jobs.id, jobs.status, jobs.queue, jobs.followed, jobs.limits, jobs.reason

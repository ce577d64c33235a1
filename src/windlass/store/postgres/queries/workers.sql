-- Workers: registration, beats, sweep, rescue, leadership.

-- name: register
-- Insert the row of a worker that starts.
--
--   $1 id   $2 name   $3 lease in seconds   $4 concurrency   $5 queues; null: every queue   $6 types   $7 isolates
--   $8 version of the program   $9 version of Windlass   $10 the schema number that it knows
INSERT INTO windlass.workers (
       id, name, alive_until, concurrency, queues, types, isolates, version, windlass, schema_number)
VALUES ($1, $2, windlass.now() + make_interval(secs => $3::float8), $4, $5::text[], $6::text[], $7, $8, $9, $10)

-- name: deregister
-- Delete the row of a worker that holds no job. A worker that still holds a job keeps its row: the row names the
-- owner of the job.
--
--   $1 id
DELETE FROM windlass.workers
 WHERE id = $1 AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.worker = $1 AND jobs.status = 'running')

-- name: beat
-- Renew a worker's lease and write how many jobs it holds and what its processors do. A row that is dead or deleted is
-- not revived: a worker that was declared dead stays dead.
--
--   $1 id   $2 lease in seconds   $3 jobs held   $4 pools as JSON; null: unknown
UPDATE windlass.workers SET alive_until = windlass.now() + make_interval(secs => $2::float8), held = $3::int,
       held_at = windlass.now(), pools = $4::text
 WHERE id = $1 AND NOT dead
RETURNING true

-- name: set_idle
-- Record whether a live worker is idle: an enqueue wakes idle workers only.
--
--   $1 id   $2 idle
UPDATE windlass.workers SET idle = $2 WHERE id = $1 AND NOT dead

-- name: workers
-- List the workers, each with the number of its running jobs.
--
--   $1 whether to read the reports of processors
SELECT id, name, started_at, alive_until, dead, idle, queues, types, concurrency,
       (SELECT count(*)::int FROM windlass.jobs WHERE jobs.worker = workers.id AND jobs.status = 'running') AS running,
       windlass.now() AS now, version, windlass, held_at AS reported_at,
       CASE WHEN $1::boolean THEN pools END AS pools
  FROM windlass.workers
 ORDER BY started_at, id

-- name: mark_workers_dead
-- Rescue, step one, committed on its own: mark workers dead that have been silent beyond their lease.
--
-- A beat that comes later finds the mark and changes nothing, so that no job is ever taken from a worker that is alive.
-- The clock's time is kept in the same statement, so that a worker that starts later notices a clock that was set back.
WITH seen AS (
    UPDATE windlass.installation SET seen_at = windlass.now()
     WHERE id = ANY (ARRAY (SELECT id FROM windlass.installation
                             WHERE seen_at < windlass.now() - interval '1 second' FOR UPDATE SKIP LOCKED))
)
UPDATE windlass.workers
   SET dead = true, idle = false
 WHERE id IN (SELECT id FROM windlass.workers WHERE NOT dead AND alive_until < windlass.now() FOR UPDATE SKIP LOCKED)
   AND NOT dead AND alive_until < windlass.now()
RETURNING id

-- name: add_unknown_workers
-- Insert a dead worker's row for each worker id that jobs name and that has no row (a restored backup, a row deleted by
-- hand): then the rescue finds these jobs like all others. Runs rarely: it reads every entry of jobs_running.
INSERT INTO windlass.workers (id, name, alive_until, dead, concurrency, types)
SELECT DISTINCT jobs.worker, 'unknown', windlass.now(), true, 0, '{}'::text[]
  FROM windlass.jobs
 WHERE jobs.status = 'running' AND NOT EXISTS (SELECT FROM windlass.workers WHERE workers.id = jobs.worker)
ON CONFLICT (id) DO NOTHING

-- name: orphans
-- List a page of jobs that dead workers hold, except some.
--
--   $1 page   $2 ids to leave out
SELECT jobs.id
  FROM windlass.jobs
 WHERE jobs.status = 'running'
   AND jobs.worker = ANY (ARRAY (SELECT id FROM windlass.workers WHERE dead))
   AND jobs.id <> ALL ($2::uuid[])
 LIMIT $1::int

-- name: rescue
-- Rescue, step two: the jobs of dead workers become claimable, a page at a time and without waiting for a lock.
--
--   $1 max crashes
--   $2 max rescues
--   $3 page
--   $4 ids
--   $5 true: only these ids; false: all except these
--   $6 crash_counts: a job keeps the attempt that was interrupted, and is dead if it was the last one
--   $7 blames: whether a crash is counted at all; after an outage a worker's silence is no evidence against its jobs
--   $8 the fingerprint of the error
--
-- The row is taken by (worker, token) as it is now, never by a list that was read earlier: a job that was finished in
-- between is not there any more. The attempt is not counted. run_at stays, so that the job keeps its place: the rescan
-- of every worker reads below its floor. The job was due, and is due, also if the clock was set back since.
-- A crash is counted against every job that may have caused it. A job that already was a suspect on a worker that runs
-- suspects in processes of their own cannot have killed its worker and is not counted. All deaths count as rescues.
WITH orphan AS MATERIALIZED (
    SELECT jobs.id, jobs.token, jobs.rescues + 1 AS rescues,
           jobs.crashes + CASE WHEN NOT $7::boolean OR jobs.crashes > 0 AND coalesce(
               (SELECT isolates FROM windlass.workers WHERE workers.id = jobs.worker), false)
               THEN 0 ELSE 1 END AS crashes,
           $6::boolean AND jobs.attempt >= jobs.max_attempts AS exhausted
      FROM windlass.jobs
     WHERE jobs.status = 'running'
       -- An array, so that the index is entered once per dead worker and never walked over the entries of live workers.
       AND jobs.worker = ANY (ARRAY (SELECT id FROM windlass.workers WHERE dead))
       AND (jobs.id = ANY ($4::uuid[])) = $5::boolean
     LIMIT $3::int
       FOR UPDATE SKIP LOCKED
), verdict AS MATERIALIZED (
    SELECT orphan.*,
           CASE WHEN orphan.crashes >= $1::int OR orphan.rescues >= $2::int THEN 'crashed'
                WHEN orphan.exhausted THEN 'exhausted' END AS reason
      FROM orphan
), rescued AS (
    UPDATE windlass.jobs
       SET status = CASE WHEN verdict.reason IS NULL THEN 'queued' ELSE 'dead' END,
           token = NULL, worker = NULL, run_at = least(jobs.run_at, windlass.now()),
           attempt = greatest(jobs.attempt - (NOT $6::boolean)::int, 0),
           crashes = verdict.crashes, rescues = verdict.rescues, reason = verdict.reason,
           finished_at = CASE WHEN verdict.reason IS NOT NULL THEN windlass.now() END,
           updated_at = windlass.now(),
           error = windlass.crash(jobs.attempt), fingerprint = $8, error_at = windlass.now(), error_worker = jobs.worker,
           attempts = windlass.remember(jobs.attempts, json_build_object(
               'attempt', jobs.attempt, 'fence', jobs.fence, 'worker', jobs.worker, 'started_at', jobs.started_at,
               'finished_at', windlass.now(), 'outcome', 'crashed', 'error', windlass.crash(jobs.attempt)))
      FROM verdict
     WHERE jobs.id = ANY (ARRAY[verdict.id]) AND jobs.token = verdict.token
    RETURNING jobs.id, jobs.status, jobs.queue, jobs.phase, jobs.followed, jobs.limits, jobs.reason
), attempt AS (
    {ended_without_worker}, status AS outcome FROM rescued WHERE status = 'dead'
), {figured}
SELECT id, status, queue, followed, limits, reason FROM rescued

-- name: rescue_bare
-- Give back one job of a dead worker with the least that can be written, because `rescue` was refused for it. Its
-- attempts and its error stay as they are, and nothing follows its end.
--
--   $1 id   $2 max crashes   $3 crash_counts   $4 blames, both as in `rescue`
WITH verdict AS MATERIALIZED (
    SELECT jobs.token, jobs.crashes + $4::boolean::int AS crashes,
           CASE WHEN jobs.crashes + $4::boolean::int >= $2::int THEN 'crashed'
                WHEN $3::boolean AND jobs.attempt >= jobs.max_attempts THEN 'exhausted' END AS reason
      FROM windlass.jobs
     WHERE jobs.id = $1 AND jobs.status = 'running'
       AND jobs.worker = ANY (ARRAY (SELECT id FROM windlass.workers WHERE dead))
       FOR UPDATE
), rescued AS (
    UPDATE windlass.jobs
       SET status = CASE WHEN verdict.reason IS NULL THEN 'queued' ELSE 'dead' END,
           token = NULL, worker = NULL, attempt = greatest(jobs.attempt - (NOT $3::boolean)::int, 0),
           crashes = verdict.crashes, rescues = jobs.rescues + 1, reason = verdict.reason,
           finished_at = CASE WHEN verdict.reason IS NOT NULL THEN windlass.now() END,
           updated_at = windlass.now()
      FROM verdict
     WHERE jobs.id = $1 AND jobs.token = verdict.token
 RETURNING jobs.status, jobs.queue, jobs.phase, jobs.limits
), attempt AS (
    {ended_without_worker}, status AS outcome FROM rescued WHERE status = 'dead'
), {figured}
SELECT status, limits FROM rescued

-- name: cancel_requests
-- List the running jobs of one worker that have a request to cancel.
--
--   $1 worker
SELECT id FROM windlass.jobs WHERE worker = $1 AND cancel_requested

-- name: forgotten_cancels
-- List jobs with a request to cancel that no worker carried out, because it died: they must not start again.
SELECT id FROM windlass.jobs WHERE cancel_requested AND {claimable_status} LIMIT 500

-- name: prune_workers
-- Delete a dead worker's row when no running job names it any more, and never before: the row marks its jobs as
-- orphans.
DELETE FROM windlass.workers
 WHERE dead AND alive_until < windlass.now() - interval '1 minute'
   AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.worker = workers.id AND jobs.status = 'running' OFFSET 0)

-- name: lead
-- Take or keep a leadership: it is taken if it is free or its lease has expired, and kept by its holder.
--
--   $1 duty   $2 worker   $3 lease in seconds
INSERT INTO windlass.leaders AS held (name, holder, until)
VALUES ($1, $2, windlass.now() + make_interval(secs => $3::float8))
ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, until = excluded.until,
       term = held.term + CASE WHEN held.holder = excluded.holder THEN 0 ELSE 1 END
 WHERE held.holder = excluded.holder OR held.until < windlass.now()
RETURNING true

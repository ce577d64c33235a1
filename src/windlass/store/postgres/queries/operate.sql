-- Operate: what an operator does to a job.

-- name: cancel
-- Cancel one job: at once when it is not running ($2: the states that allow it), else as a request to its worker.
-- Answers the state that was found; no row when the job is not here (any more).
WITH found AS MATERIALIZED (
    SELECT id, status FROM windlass.jobs WHERE id = $1 FOR UPDATE
), gone AS (
    DELETE FROM windlass.jobs USING found
     WHERE jobs.id = ANY (ARRAY[found.id]) AND found.status = ANY ($2::text[])
 RETURNING jobs.*
), archived AS (
    INSERT INTO windlass.history (
        {history_columns})
    SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, windlass.now(), claimed_at, started_at,
           windlass.now(), cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed,
           true, 'cancelled', tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error, attempts,
           followed, consequences, key_scope, limits
      FROM gone
), asked AS (
    UPDATE windlass.jobs SET cancel_requested = true, updated_at = windlass.now()
      FROM found
     WHERE jobs.id = ANY (ARRAY[found.id]) AND found.status = 'running'
)
SELECT status FROM found

-- name: cancel_many
-- Cancel jobs that don't run, at once. A row that somebody else holds is skipped.   $1 [{id, reason, actor}]
WITH lost AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS lost (id uuid, reason text, actor text)
), held AS MATERIALIZED (
    SELECT lost.id, lost.reason, lost.actor
      FROM lost
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[lost.id]) AND jobs.status IN ('queued', 'failed', 'waiting')
     ORDER BY lost.id
       FOR UPDATE OF jobs SKIP LOCKED
), gone AS (
    DELETE FROM windlass.jobs USING held AS lost
     WHERE jobs.id = ANY (ARRAY[lost.id])
 RETURNING jobs.*, lost.reason AS why, lost.actor
), archived AS (
    INSERT INTO windlass.history (
        {history_columns})
    SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, windlass.now(), claimed_at, started_at,
           windlass.now(), cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed,
           failed, true, 'cancelled', tenant, queue, type, phase, pipeline, key, trace, why, input, output, error,
           attempts, followed, consequences, key_scope, limits
      FROM gone
), audited AS (
    INSERT INTO windlass.audit (action, actor, job, type, queue, tenant, reason)
    SELECT 'JOB_CANCELLED', actor, id, type, queue, tenant, why FROM gone
)
SELECT id FROM gone

-- name: retry
-- An operator makes a failed job due now.   $1 id   $2 the states that allow it
UPDATE windlass.jobs SET status = 'queued', run_at = windlass.now(), updated_at = windlass.now()
 WHERE id = $1 AND status = ANY ($2::text[])
RETURNING status

-- name: replay
-- A dead job starts over under its own id: attempts and crashes from zero, errors and fence kept.   $1 id   $2 states
UPDATE windlass.jobs
   SET status = 'queued', run_at = windlass.now(), updated_at = windlass.now(), attempt = 0, crashes = 0, rescues = 0,
       reason = NULL, finished_at = NULL, cancel_requested = false
 WHERE id = $1 AND status = ANY ($2::text[])
RETURNING status

-- name: resume
-- A cancelled job comes back from the history, due now.   $1 id   $2 the states that allow it
WITH back AS (
    DELETE FROM windlass.history WHERE id = $1 AND status = ANY ($2::text[])
 RETURNING *
)
INSERT INTO windlass.jobs (
    id, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at, cost_cents, priority,
    attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed, tenant, queue, type, phase, pipeline, key,
    trace, input, output, error, attempts, followed, consequences, key_scope, limits)
SELECT id, parent, copied_from, fence, windlass.now(), created_at, windlass.now(), claimed_at, started_at, cost_cents,
       priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed, tenant, queue, type, phase,
       pipeline, key, trace, input, output, error, attempts, followed, consequences, key_scope, limits
  FROM back
RETURNING status

-- name: discard
-- A dead job is gone.   $1 id   $2 the states that allow it
DELETE FROM windlass.jobs WHERE id = $1 AND status = ANY ($2::text[])
RETURNING status

-- name: request_cancels
-- Ask the holder of a running job to stop; asking again changes nothing.   $1 [id]
UPDATE windlass.jobs SET cancel_requested = true, updated_at = windlass.now()
 WHERE id = (CAST($1 AS json) ->> 0)::uuid AND status = 'running'
RETURNING id

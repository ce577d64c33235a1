-- Operate: what an operator does to a job.

-- name: cancel
-- Cancel one job: at once if it is not running, else as a request to its worker. Returns the state that was found; no
-- row if the job is not in this table any more.
--
--   $1 id   $2 the states that allow it
WITH found AS MATERIALIZED (
    SELECT id, status FROM windlass.jobs WHERE id = $1 FOR UPDATE
), deleted AS (
    DELETE FROM windlass.jobs USING found
     WHERE jobs.id = ANY (ARRAY[found.id]) AND found.status = ANY ($2::text[])
 RETURNING jobs.*
), archived AS (
    INSERT INTO windlass.history (
        {history_columns})
    SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, windlass.now(), claimed_at, started_at,
           windlass.now(), cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed,
           failed, true, 'cancelled', tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error,
           attempts, followed, follow_ups, key_scope, limits, fingerprint, error_at, error_worker
      FROM deleted
), attempt AS (
    {ended_without_worker}, 'cancelled' AS outcome FROM deleted
), {figured}, requested AS (
    UPDATE windlass.jobs SET cancel_requested = true, updated_at = windlass.now()
      FROM found
     WHERE jobs.id = ANY (ARRAY[found.id]) AND found.status = 'running'
)
SELECT status FROM found

-- name: cancel_many
-- Cancel jobs that do not run, at once. A row that another transaction holds is skipped.
--
--   $1 [{id, reason, actor}]
WITH cancelled AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS cancelled (id uuid, reason text, actor text)
), held AS MATERIALIZED (
    SELECT cancelled.id, cancelled.reason, cancelled.actor
      FROM cancelled
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[cancelled.id]) AND jobs.status IN ('queued', 'failed', 'waiting')
     ORDER BY cancelled.id
       FOR UPDATE OF jobs SKIP LOCKED
), deleted AS (
    DELETE FROM windlass.jobs USING held
     WHERE jobs.id = ANY (ARRAY[held.id])
 RETURNING jobs.*, held.reason AS cancel_reason, held.actor
), archived AS (
    INSERT INTO windlass.history (
        {history_columns})
    SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, windlass.now(), claimed_at, started_at,
           windlass.now(), cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed,
           failed, true, 'cancelled', tenant, queue, type, phase, pipeline, key, trace, cancel_reason, input, output,
           error, attempts, followed, follow_ups, key_scope, limits, fingerprint, error_at, error_worker
      FROM deleted
), audited AS (
    INSERT INTO windlass.audit (action, actor, job, type, queue, tenant, reason)
    SELECT 'JOB_CANCELLED', actor, id, type, queue, tenant, cancel_reason FROM deleted
), attempt AS (
    {ended_without_worker}, 'cancelled' AS outcome FROM deleted
), {figured}
SELECT id FROM deleted

-- name: retry
-- Make a failed job due now.
--
--   $1 id   $2 the states that allow it
UPDATE windlass.jobs SET status = 'queued', run_at = windlass.now(), updated_at = windlass.now()
 WHERE id = $1 AND status = ANY ($2::text[])
RETURNING status

-- name: replay
-- Let a dead job start over under its own id: attempts and crashes from zero, errors and fence kept.
--
--   $1 id   $2 the states that allow it
UPDATE windlass.jobs
   SET status = 'queued', run_at = windlass.now(), updated_at = windlass.now(), attempt = 0, crashes = 0, rescues = 0,
       reason = NULL, finished_at = NULL, cancel_requested = false
 WHERE id = $1 AND status = ANY ($2::text[])
RETURNING status

-- name: resume
-- Move a cancelled job from the history back to the jobs, due now.
--
--   $1 id   $2 the states that allow it
WITH resumed AS (
    DELETE FROM windlass.history WHERE id = $1 AND status = ANY ($2::text[])
 RETURNING *
)
INSERT INTO windlass.jobs (
    id, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at, cost_cents, priority,
    attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed, tenant, queue, type, phase, pipeline,
    key, trace, input, output, error, attempts, followed, follow_ups, key_scope, limits, fingerprint, error_at,
    error_worker)
SELECT id, parent, copied_from, fence, windlass.now(), created_at, windlass.now(), claimed_at, started_at, cost_cents,
       priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed, tenant, queue, type,
       phase, pipeline, key, trace, input, output, error, attempts, followed, follow_ups, key_scope, limits, fingerprint,
       error_at, error_worker
  FROM resumed
RETURNING status

-- name: discard
-- Delete a dead job.
--
--   $1 id   $2 the states that allow it
DELETE FROM windlass.jobs WHERE id = $1 AND status = ANY ($2::text[])
RETURNING status

-- name: request_cancels
-- Ask the worker of a running job to stop it. A second request changes nothing.
--
--   $1 [id]
UPDATE windlass.jobs SET cancel_requested = true, updated_at = windlass.now()
 WHERE id = (CAST($1 AS json) ->> 0)::uuid AND status = 'running'
RETURNING id

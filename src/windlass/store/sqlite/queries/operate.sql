-- Operate: what an operator does to a job.

-- name: cancel_many
-- Cancel jobs that don't run, at once.   ?1 [{id, reason, actor}]   ?2 now
INSERT INTO windlass_audit (at, action, actor, job, type, queue, tenant, reason)
SELECT ?2, 'JOB_CANCELLED', lost.value ->> 'actor', jobs.id, jobs.type, jobs.queue, jobs.tenant, lost.value ->> 'reason'
  FROM json_each(?1) AS lost
  JOIN windlass_jobs AS jobs ON jobs.id = lost.value ->> 'id' AND jobs.status IN ('queued', 'failed', 'waiting')
-- then
INSERT INTO windlass_history (
    {history_columns})
SELECT jobs.id, jobs.token, jobs.worker, jobs.parent, jobs.copied_from, jobs.fence, jobs.run_at, jobs.created_at, ?2,
       jobs.claimed_at, jobs.started_at, ?2, jobs.cost_cents, jobs.priority, jobs.attempt, jobs.max_attempts,
       jobs.crashes, jobs.rescues, jobs.phase_rank, jobs.total, jobs.processed, jobs.failed, 1, 'cancelled',
       jobs.tenant, jobs.queue, jobs.type, jobs.phase, jobs.pipeline, jobs.key, jobs.trace, lost.value ->> 'reason',
       jobs.input, jobs.output, jobs.error, jobs.attempts, jobs.followed, jobs.consequences, jobs.key_scope, jobs.limits
  FROM json_each(?1) AS lost
  JOIN windlass_jobs AS jobs ON jobs.id = lost.value ->> 'id' AND jobs.status IN ('queued', 'failed', 'waiting')
-- then
DELETE FROM windlass_jobs
 WHERE id IN (SELECT value ->> 'id' FROM json_each(?1)) AND status IN ('queued', 'failed', 'waiting')
RETURNING id

-- name: retry
-- A failed job is due now.
UPDATE windlass_jobs
   SET status = 'queued', run_at = :now, updated_at = :now
 WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: replay
-- A dead job starts over: attempts and crashes count from zero, the errors and the fence stay. A request to cancel that
-- came before its death is answered by it.
UPDATE windlass_jobs
   SET status = 'queued', run_at = :now, updated_at = :now, attempt = 0, crashes = 0, rescues = 0, cancel_requested = 0,
       reason = NULL, finished_at = NULL
 WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: resume
-- A cancelled job comes back from the history; forget.sql takes it from there in the same transaction.
INSERT INTO windlass_jobs (
    id, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at, cost_cents, priority,
    attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed, status, tenant, queue, type, phase, pipeline,
    key, trace, input, output, error, attempts, followed, consequences, key_scope, limits)
SELECT id, parent, copied_from, fence, :now, created_at, :now, claimed_at, started_at, cost_cents, priority,
       attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed, 'queued', tenant, queue, type, phase, pipeline,
       key, trace, input, output, error, attempts, followed, consequences, key_scope, limits
  FROM windlass_history
 WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: discard
-- A dead job is gone.   :id   :sources the states that allow it
DELETE FROM windlass_jobs WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: archive_cancelled
-- Copy a job that no worker holds to the history as cancelled, if its state allows it; depart.sql takes it from the
-- jobs in the same transaction.
--
--   :id   :sources the states it may come from   :now
INSERT INTO windlass_history (
    {history_columns})
SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, :now, claimed_at, started_at, :now,
       cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed, 1, 'cancelled',
       tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error, attempts,
       followed, consequences, key_scope, limits
  FROM windlass_jobs
 WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: delete_archived
-- Take a job that archive.sql copied to the history from the jobs.
DELETE FROM windlass_jobs WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: delete_from_history
-- Take a resumed job from the history.
DELETE FROM windlass_history WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: request_cancel
-- Ask the holder of a running job to stop; asking again changes nothing.
UPDATE windlass_jobs SET cancel_requested = 1, updated_at = :now WHERE id = :id AND status = 'running'

-- name: request_cancels
-- Ask the holder of a running job to stop; asking again changes nothing.   ?1 [id]   ?2 now
UPDATE windlass_jobs SET cancel_requested = 1, updated_at = ?2 WHERE id = ?1 ->> 0 AND status = 'running'
RETURNING id

-- Operate: the operations on a job.

-- name: cancel_many
-- Cancel jobs that are not running.
--   ?1 [{id, reason, actor}]   ?2 now
INSERT INTO windlass_audit (at, action, actor, job, type, queue, tenant, reason)
SELECT ?2, 'JOB_CANCELLED', lost.value ->> 'actor', jobs.id, jobs.type, jobs.queue, jobs.tenant, lost.value ->> 'reason'
  FROM json_each(?1) AS lost
  JOIN windlass_jobs AS jobs ON jobs.id = lost.value ->> 'id' AND jobs.status IN ('queued', 'failed', 'waiting')
-- then
INSERT INTO windlass_figures (at, worker, queue, phase, cancelled, runs, waits)
SELECT ?2 - ?2 % 10000000, lower(hex(randomblob(16))), queue, phase, 1, '[]', '[]'
  FROM windlass_jobs
 WHERE id IN (SELECT value ->> 'id' FROM json_each(?1)) AND status IN ('queued', 'failed', 'waiting')
-- then
INSERT INTO windlass_history (
    {history_columns})
SELECT jobs.id, jobs.token, jobs.worker, jobs.parent, jobs.copied_from, jobs.fence, jobs.run_at, jobs.created_at, ?2,
       jobs.claimed_at, jobs.started_at, ?2, jobs.cost_cents, jobs.priority, jobs.attempt, jobs.max_attempts,
       jobs.crashes, jobs.rescues, jobs.phase_rank, jobs.total, jobs.processed, jobs.failed, 1, 'cancelled',
       jobs.tenant, jobs.queue, jobs.type, jobs.phase, jobs.pipeline, jobs.key, jobs.trace, lost.value ->> 'reason',
       jobs.input, jobs.output, jobs.error, jobs.attempts, jobs.followed, jobs.follow_ups, jobs.key_scope, jobs.limits,
       jobs.fingerprint, jobs.error_at, jobs.error_worker
  FROM json_each(?1) AS lost
  JOIN windlass_jobs AS jobs ON jobs.id = lost.value ->> 'id' AND jobs.status IN ('queued', 'failed', 'waiting')
-- then
DELETE FROM windlass_jobs
 WHERE id IN (SELECT value ->> 'id' FROM json_each(?1)) AND status IN ('queued', 'failed', 'waiting')
RETURNING id

-- name: retry
-- A failed job is due now.
--   :id   :sources a JSON array of the states that allow it   :now
UPDATE windlass_jobs
   SET status = 'queued', run_at = :now, updated_at = :now
 WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: replay
-- A dead job starts again: attempts and crashes count from zero, the errors and the fence stay. A cancel that was
-- requested before its death is dropped.
--   :id   :sources a JSON array of the states that allow it   :now
UPDATE windlass_jobs
   SET status = 'queued', run_at = :now, updated_at = :now, attempt = 0, crashes = 0, rescues = 0, cancel_requested = 0,
       reason = NULL, finished_at = NULL
 WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: resume
-- Copy a cancelled job from the history back to the jobs; `delete_from_history` deletes it there in the same
-- transaction.
--   :id   :sources a JSON array of the states that allow it   :now
INSERT INTO windlass_jobs (
    id, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at, cost_cents, priority,
    attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed, status, tenant, queue, type,
    phase, pipeline, key, trace, input, output, error, attempts, followed, follow_ups, key_scope, limits, fingerprint,
    error_at, error_worker)
SELECT id, parent, copied_from, fence, :now, created_at, :now, claimed_at, started_at, cost_cents, priority,
       attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed, 'queued', tenant, queue,
       type, phase, pipeline, key, trace, input, output, error, attempts, followed, follow_ups, key_scope, limits,
       fingerprint, error_at, error_worker
  FROM windlass_history
 WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: discard
-- Delete a dead job.
--   :id   :sources a JSON array of the states that allow it
DELETE FROM windlass_jobs WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: archive_cancelled
-- Copy a job that no worker holds to the history as cancelled, if its state allows it; `delete_archived` deletes it
-- from the jobs in the same transaction.
--   :id   :sources a JSON array of the states that allow it   :now
INSERT INTO windlass_history (
    {history_columns})
SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, :now, claimed_at, started_at, :now,
       cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed, 1,
       'cancelled', tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error, attempts,
       followed, follow_ups, key_scope, limits, fingerprint, error_at, error_worker
  FROM windlass_jobs
 WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: delete_archived
-- Delete a job that `archive_cancelled` copied to the history.
--   :id   :sources as there
DELETE FROM windlass_jobs WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: delete_from_history
-- Delete a job from the history that `resume` copied to the jobs.
--   :id   :sources as there
DELETE FROM windlass_history WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- name: request_cancel
-- Ask the worker of a running job to stop it; a second request changes nothing.
--   :id   :now
UPDATE windlass_jobs SET cancel_requested = 1, updated_at = :now WHERE id = :id AND status = 'running'

-- name: request_cancels
-- Ask the worker of a running job to stop it; a second request changes nothing.
--   ?1 [id]   ?2 now
UPDATE windlass_jobs SET cancel_requested = 1, updated_at = ?2 WHERE id = ?1 ->> 0 AND status = 'running'
RETURNING id

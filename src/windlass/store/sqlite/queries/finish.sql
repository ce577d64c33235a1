-- Finish: the transitions that the holder of a lease writes.

-- fragment: history_columns
-- The columns of the history, in the order in which the copies below give them.
id, token, worker, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at,
        finished_at, cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed,
        failed, cancel_requested, status, tenant, queue, type, phase, pipeline, key, trace, reason, input, output,
        error, attempts, followed, follow_ups, key_scope, limits, fingerprint, error_at, error_worker

-- name: finish
-- Copy one finished job to the history, under its lease; `delete_finished` deletes it from the jobs in the same
-- transaction. A lease that is not current matches no row. The history keeps the token, for `finished_by_lease`.
--   :id, :token, :sources (a JSON array of the states that allow it) the lease
--   :status, :output, :error, :entry, :elapsed (microseconds), :total, :processed, :failed, :cost_cents, :attempt,
--   :reason
--   the result of the attempt   :now
INSERT INTO windlass_history (
    {history_columns})
SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, :now, claimed_at, :now - :elapsed, :now,
       max(cost_cents, :cost_cents), priority, :attempt, max_attempts, crashes, rescues, phase_rank, :total, :processed,
       :failed, cancel_requested, :status, tenant, queue, type, phase, pipeline, key, trace, :reason, input,
       coalesce(:output, output), coalesce(:error, error), remember(attempts, :entry), followed, follow_ups,
       key_scope, limits, fingerprint, error_at, error_worker
  FROM windlass_jobs
 WHERE id = :id AND token = :token AND status IN (SELECT value FROM json_each(:sources))

-- name: finish_staying
-- A transition after which the job stays in the jobs, under its lease: fail, bury, wait, release, snooze.
--
--   :id, :token      the lease
--   :sources         a JSON array of the states that allow it
--   :status
--   :delay           microseconds until it is due; null keeps its place
--   :attempt, :crashes, :entry, :reason, :total, :processed, :failed, :cost_cents
--   :error           null keeps the last one
--   :fingerprint     of the error; null keeps the last one
--   :elapsed         microseconds since the start of the attempt
--   :now
UPDATE windlass_jobs
   SET status = :status, token = NULL, worker = NULL, run_at = coalesce(:now + :delay, min(run_at, :now)),
       attempt = :attempt, crashes = :crashes, error = coalesce(:error, error),
       attempts = remember(attempts, :entry), reason = :reason, total = :total, processed = :processed,
       failed = :failed, cost_cents = max(cost_cents, :cost_cents), updated_at = :now, started_at = :now - :elapsed,
       finished_at = CASE WHEN :status = 'dead' THEN :now END, fingerprint = coalesce(:fingerprint, fingerprint),
       error_at = iif(:fingerprint IS NULL, error_at, :now),
       error_worker = iif(:fingerprint IS NULL, error_worker, worker)
 WHERE id = :id AND token = :token AND status IN (SELECT value FROM json_each(:sources))

-- name: finish_cancelled
-- A job for which a cancel was requested, and that would become claimable again (or wait), goes to the history as
-- cancelled instead: after a request to cancel it does not start again. It runs before `finish_staying`, with the same
-- parameters.
INSERT INTO windlass_history (
    {history_columns})
SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, :now, claimed_at, :now - :elapsed, :now,
       max(cost_cents, :cost_cents), priority, :attempt, max_attempts, :crashes, rescues, phase_rank, :total,
       :processed, :failed, 1, 'cancelled', tenant, queue, type, phase, pipeline, key, trace, reason, input, output,
       coalesce(:error, error), remember(attempts, :entry), followed, follow_ups, key_scope, limits,
       coalesce(:fingerprint, fingerprint), iif(:fingerprint IS NULL, error_at, :now),
       iif(:fingerprint IS NULL, error_worker, worker)
  FROM windlass_jobs
 WHERE id = :id AND token = :token AND status IN (SELECT value FROM json_each(:sources))
   AND cancel_requested AND :status <> 'dead'

-- name: advance
-- Move a job to the next phase of its pipeline, under the lease. A job for which a cancel was requested stays, for
-- `finish_cancelled`.
--   the parameters of `finish_staying`, and :type, :queue, :phase, :phase_rank, :max_attempts, :limits, :output
UPDATE windlass_jobs
   SET status = 'queued', token = NULL, worker = NULL, run_at = coalesce(:now + :delay, min(run_at, :now)),
       updated_at = :now, type = :type, queue = :queue,
       phase = :phase, phase_rank = :phase_rank, max_attempts = :max_attempts, attempt = 0, crashes = 0,
       output = :output, error = NULL, reason = NULL, attempts = remember(attempts, :entry), total = :total,
       processed = :processed, failed = :failed, cost_cents = max(cost_cents, :cost_cents),
       started_at = :now - :elapsed, limits = :limits
 WHERE id = :id AND token = :token AND status IN (SELECT value FROM json_each(:sources)) AND NOT cancel_requested

-- name: bury_unreadable
-- Bury a job with the smallest possible write, under its lease: its result could not be stored, or its row not be read.
-- Its attempts and its error stay as they are.
--   :id, :token the lease   :reason   :now
UPDATE windlass_jobs
   SET status = 'dead', token = NULL, worker = NULL, reason = :reason, finished_at = :now, updated_at = :now
 WHERE id = :id AND token = :token
RETURNING limits

-- name: finished_by_lease
-- Whether this lease finished its job: the history keeps the token.
--   :id, :token the lease
SELECT 1 FROM windlass_history WHERE id = :id AND token = :token

-- name: record_progress
-- Write progress, under the lease.
--   :id, :token the lease   :total   :processed   :failed   :now
UPDATE windlass_jobs
   SET total = :total, processed = :processed, failed = :failed, updated_at = :now
 WHERE id = :id AND token = :token AND status = 'running'

-- name: delete_finished
-- Delete a job that was just copied to the history, under the same lease.
--   :id, :token the lease
DELETE FROM windlass_jobs WHERE id = :id AND token = :token

-- name: record_end
-- Write a row of the audit for a final transition that was just written.
--   :action   :id   :now
INSERT INTO windlass_audit (at, action, job, type, queue, tenant, reason)
SELECT :now, :action, id, type, queue, tenant, reason FROM windlass_jobs WHERE id = :id
UNION ALL
SELECT :now, :action, id, type, queue, tenant, reason FROM windlass_history WHERE id = :id

-- name: slots_of_jobs
-- The keys of these jobs that have limits.
--   :ids a JSON array
SELECT jobs.id, jobs.limits
  FROM json_each(:ids) AS held
  JOIN windlass_jobs AS jobs ON jobs.id = held.value
 WHERE jobs.limits IS NOT NULL

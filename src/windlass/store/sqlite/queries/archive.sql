-- Copy a job that no worker holds to the history as cancelled, if its state allows it; depart.sql takes it from the
-- jobs in the same transaction.
--
--   :id   :sources the states it may come from   :now
INSERT INTO windlass_history (
    id, token, worker, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at,
    finished_at, cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed,
    cancel_requested, status, tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error,
    attempts, followed, consequences, key_scope, limits)
SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, :now, claimed_at, started_at, :now,
       cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed, 1, 'cancelled',
       tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error, attempts,
       followed, consequences, key_scope, limits
  FROM windlass_jobs
 WHERE id = :id AND status IN (SELECT value FROM json_each(:sources))

-- Copy one finished job to the history, under its lease; leave.sql takes it from the jobs in the same transaction.
--
--   :id, :token, :sources (the states it may come from) the lease   :status, :output, :error, :entry, :elapsed
--   (microseconds), :total, :processed, :failed, :cost_cents, :attempt, :reason what the attempt came to   :now
--
-- A lease that is not current matches nothing. The token stays in the history: it tells later who finished.
INSERT INTO windlass_history (
    id, token, worker, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at,
    finished_at, cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed,
    cancel_requested, status, tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error,
    attempts, followed, consequences, key_scope, limits)
SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, :now, claimed_at, :now - :elapsed, :now,
       max(cost_cents, :cost_cents), priority, :attempt, max_attempts, crashes, rescues, phase_rank, :total, :processed,
       :failed, cancel_requested, :status, tenant, queue, type, phase, pipeline, key, trace, :reason, input, coalesce(:output, output),
       coalesce(:error, error), remember(attempts, :entry), followed, consequences, key_scope, limits
  FROM windlass_jobs
 WHERE id = :id AND token = :token AND status IN (SELECT value FROM json_each(:sources))

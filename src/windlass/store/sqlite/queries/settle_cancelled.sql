-- A job that somebody asked to cancel and that would become claimable again (or wait) goes to the history as cancelled
-- instead: after a request to cancel nothing starts any more. Before settle.sql, with the same parameters.
INSERT INTO windlass_history (
    id, token, worker, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at,
    finished_at, cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed,
    cancel_requested, status, tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error,
    attempts, followed, consequences, key_scope, limits)
SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, :now, claimed_at, :now - :elapsed, :now,
       max(cost_cents, :cost_cents), priority, :attempt, max_attempts, :crashes, rescues, phase_rank, :total, :processed, :failed,
       1, 'cancelled', tenant, queue, type, phase, pipeline, key, trace, reason, input, output,
       coalesce(:error, error), remember(attempts, :entry), followed, consequences, key_scope, limits
  FROM windlass_jobs
 WHERE id = :id AND token = :token AND status IN (SELECT value FROM json_each(:sources))
   AND cancel_requested AND :status <> 'dead'

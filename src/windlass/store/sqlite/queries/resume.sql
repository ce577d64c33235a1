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

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

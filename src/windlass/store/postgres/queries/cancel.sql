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
        id, token, worker, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at,
        finished_at, cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed,
        cancel_requested, status, tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error,
        attempts, followed, consequences, key_scope, limits)
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

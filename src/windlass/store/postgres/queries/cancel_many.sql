-- Cancel jobs that don't run, at once. A row that somebody else holds is skipped.   $1 [{id, reason, actor}]
WITH lost AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS lost (id uuid, reason text, actor text)
), held AS MATERIALIZED (
    SELECT lost.id, lost.reason, lost.actor
      FROM lost
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[lost.id]) AND jobs.status IN ('queued', 'failed', 'waiting')
     ORDER BY lost.id
       FOR UPDATE OF jobs SKIP LOCKED
), gone AS (
    DELETE FROM windlass.jobs USING held AS lost
     WHERE jobs.id = ANY (ARRAY[lost.id])
 RETURNING jobs.*, lost.reason AS why, lost.actor
), archived AS (
    INSERT INTO windlass.history (
        id, token, worker, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at,
        finished_at, cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed,
        cancel_requested, status, tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error,
        attempts, followed, consequences, key_scope, limits)
    SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, windlass.now(), claimed_at, started_at,
           windlass.now(), cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed,
           failed, true, 'cancelled', tenant, queue, type, phase, pipeline, key, trace, why, input, output, error,
           attempts, followed, consequences, key_scope, limits
      FROM gone
), audited AS (
    INSERT INTO windlass.audit (action, actor, job, type, queue, tenant, reason)
    SELECT 'JOB_CANCELLED', actor, id, type, queue, tenant, why FROM gone
)
SELECT id FROM gone

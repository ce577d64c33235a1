-- Cancel jobs that don't run, at once.   ?1 [{id, reason, actor}]   ?2 now
INSERT INTO windlass_audit (at, action, actor, job, type, queue, tenant, reason)
SELECT ?2, 'JOB_CANCELLED', lost.value ->> 'actor', jobs.id, jobs.type, jobs.queue, jobs.tenant, lost.value ->> 'reason'
  FROM json_each(?1) AS lost
  JOIN windlass_jobs AS jobs ON jobs.id = lost.value ->> 'id' AND jobs.status IN ('queued', 'failed', 'waiting')
-- then
INSERT INTO windlass_history (
    id, token, worker, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at,
    finished_at, cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed,
    cancel_requested, status, tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error,
    attempts, followed, consequences, key_scope, limits)
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

-- Transitions after which the job stays here, each under its lease: fail, bury, wait, release, snooze, advance.
--
--   $1 ids (sorted)   $2 tokens   $3 statuses   $4 seconds until it is due (null: keeps its place)   $5 attempts that count   $6 crashes
--   $7 errors (null keeps the last one)   $8 attempt entries   $9 reasons   $10 totals   $11 processed
--   $12 failed   $13 cost   $14 seconds since the start   $15 actions for the audit   $16 which jobs may
--   be settled: 0 plain ones, 1 also those that hold slots, 2 also those whose end changes more than themselves; only the
--   transaction that looks after the rest says so
--
-- Locks first and in id order, because an operator's bulk action may hold some of the rows. A job that somebody asked
-- to cancel and that would become claimable again goes to the history as cancelled instead: after a request to cancel
-- nothing starts any more.
WITH ending AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::float8[], $5::int[], $6::int[], $7::json[], $8::json[],
                         $9::text[], $10::int[], $11::int[], $12::int[], $13::bigint[], $14::float8[], $15::text[])
        AS ending (id, token, status, delay, attempt, crashes, error, entry, reason, total, processed, failed,
                   cost_cents, elapsed, action)
), held AS MATERIALIZED (
    SELECT ending.*, jobs.cancel_requested AND ending.status <> 'dead' AS cancelled
      FROM ending
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[ending.id]) AND jobs.token = ending.token
       AND ($16::int = 2 OR NOT jobs.followed AND ($16::int = 1 OR jobs.limits IS NULL))
     ORDER BY ending.id
       FOR UPDATE OF jobs
), kept AS (
    UPDATE windlass.jobs
       SET status = held.status, token = NULL, worker = NULL,
           run_at = coalesce(windlass.now() + make_interval(secs => held.delay), least(jobs.run_at, windlass.now())),
           attempt = held.attempt, crashes = held.crashes, error = coalesce(held.error, jobs.error),
           attempts = CASE WHEN held.entry IS NULL THEN jobs.attempts
                           ELSE windlass.remember(jobs.attempts, held.entry) END,
           reason = held.reason, total = held.total, processed = held.processed, failed = held.failed,
           cost_cents = held.cost_cents, updated_at = windlass.now(),
           started_at = windlass.now() - make_interval(secs => held.elapsed),
           finished_at = CASE WHEN held.status = 'dead' THEN windlass.now() END
      FROM held
     WHERE jobs.id = ANY (ARRAY[held.id]) AND NOT held.cancelled
 RETURNING jobs.id, jobs.status, jobs.type, jobs.queue, jobs.tenant, jobs.reason, jobs.limits
), gone AS (
    DELETE FROM windlass.jobs
     USING held
     WHERE jobs.id = ANY (ARRAY[held.id]) AND held.cancelled
 RETURNING jobs.*
), archived AS (
    INSERT INTO windlass.history (
        id, token, worker, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at,
        finished_at, cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed,
        cancel_requested, status, tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error,
        attempts, followed, consequences, key_scope, limits)
    SELECT gone.id, gone.token, gone.worker, gone.parent, gone.copied_from, gone.fence, gone.run_at, gone.created_at,
           windlass.now(), gone.claimed_at, windlass.now() - make_interval(secs => held.elapsed), windlass.now(),
           held.cost_cents, gone.priority, held.attempt, gone.max_attempts, held.crashes, gone.rescues, gone.phase_rank, held.total,
           held.processed, held.failed, true, 'cancelled', gone.tenant, gone.queue, gone.type, gone.phase,
           gone.pipeline, gone.key, gone.trace, gone.reason, gone.input, gone.output, coalesce(held.error, gone.error),
           CASE WHEN held.entry IS NULL THEN gone.attempts ELSE windlass.remember(gone.attempts, held.entry) END,
           gone.followed, gone.consequences, gone.key_scope, gone.limits
      FROM gone
      JOIN held USING (id)
    RETURNING id, status, type, queue, tenant, reason, limits
), audited AS (
    INSERT INTO windlass.audit (action, job, type, queue, tenant, reason)
    SELECT held.action, kept.id, kept.type, kept.queue, kept.tenant, kept.reason
      FROM kept
      JOIN held USING (id)
     WHERE kept.status = 'dead' AND held.action IS NOT NULL
    UNION ALL
    SELECT 'JOB_CANCELLED', id, type, queue, tenant, reason FROM archived
)
SELECT id, status, limits FROM kept UNION ALL SELECT id, status, limits FROM archived

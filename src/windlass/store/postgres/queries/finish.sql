-- Move finished jobs to the history, each under its lease: one statement, one round trip.
--
--   $1 ids (sorted, so that concurrent finishers lock in one order)   $2 tokens   $3 statuses   $4 outputs
--   $5 errors   $6 attempt entries   $7 seconds since the start   $8 totals   $9 processed   $10 failed
--   $11 cost   $12 attempts that count   $13 reasons   $14 actions for the audit (null: no row)   $15 which
--   jobs may be finished: 0 plain ones, 1 also those that hold slots, 2 also those whose end changes more than themselves;
--   only who gives back the slots, or looks after the rest in the same transaction, says so
--
-- A lease that is not current matches nothing, and its id is missing from the answer. A token means running (a CHECK of
-- the table); saying so again would let the planner walk jobs_running, dead entries and all, instead of the key.
-- ANY, so that each id is looked up and no join can walk over the whole index instead (ARCHITECTURE.md, look-ups).
WITH ending AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::json[], $5::json[], $6::json[], $7::float8[],
                         $8::int[], $9::int[], $10::int[], $11::bigint[], $12::int[], $13::text[], $14::text[])
        AS ending (id, token, status, output, error, entry, elapsed, total, processed, failed, cost_cents, attempt,
                   reason, action)
), gone AS (
    DELETE FROM windlass.jobs
     USING ending
     WHERE jobs.id = ANY (ARRAY[ending.id]) AND jobs.token = ending.token
       AND ($15::int = 2 OR NOT jobs.followed AND ($15::int = 1 OR jobs.limits IS NULL))
 RETURNING jobs.id, jobs.token, jobs.worker, jobs.parent, jobs.copied_from, jobs.fence, jobs.run_at, jobs.created_at,
           jobs.claimed_at, jobs.priority, jobs.max_attempts, jobs.crashes, jobs.rescues, jobs.phase_rank, jobs.cancel_requested,
           jobs.tenant, jobs.queue, jobs.type, jobs.phase, jobs.pipeline, jobs.key, jobs.trace, jobs.input,
           jobs.error AS last_error, jobs.output AS last_output, jobs.attempts, jobs.followed, jobs.consequences, jobs.key_scope, jobs.limits, ending.status, ending.output, ending.error, ending.entry,
           ending.elapsed, ending.total, ending.processed, ending.failed, ending.cost_cents, ending.attempt,
           ending.reason, ending.action
), audited AS (
    INSERT INTO windlass.audit (action, job, type, queue, tenant, reason)
    SELECT action, id, type, queue, tenant, reason FROM gone WHERE action IS NOT NULL
), kept AS (
    INSERT INTO windlass.history (
        id, token, worker, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at,
        finished_at, cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed,
        cancel_requested, status, tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error,
        attempts, followed, consequences, key_scope, limits)
    SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, windlass.now(), claimed_at,
           windlass.now() - make_interval(secs => elapsed), windlass.now(), cost_cents, priority, attempt, max_attempts,
           crashes, rescues, phase_rank, total, processed, failed, cancel_requested, status, tenant, queue, type, phase,
           pipeline, key, trace, reason, input, coalesce(output, last_output), coalesce(error, last_error),
           CASE WHEN entry IS NULL THEN attempts ELSE windlass.remember(attempts, entry) END,
           followed, consequences, key_scope, limits
      FROM gone
    RETURNING id, status, limits
){slots}
SELECT id, status, {told} FROM kept

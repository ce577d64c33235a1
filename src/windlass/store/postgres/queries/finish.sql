-- Finish: the transitions that the holder of a lease writes.

-- fragment: history_columns
id, token, worker, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at,
        finished_at, cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed, failed,
        cancel_requested, status, tenant, queue, type, phase, pipeline, key, trace, reason, input, output, error,
        attempts, followed, consequences, key_scope, limits

-- fragment: ended
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
        {history_columns})
    SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, windlass.now(), claimed_at,
           windlass.now() - make_interval(secs => elapsed), windlass.now(), cost_cents, priority, attempt, max_attempts,
           crashes, rescues, phase_rank, total, processed, failed, cancel_requested, status, tenant, queue, type, phase,
           pipeline, key, trace, reason, input, coalesce(output, last_output), coalesce(error, last_error),
           CASE WHEN entry IS NULL THEN attempts ELSE windlass.remember(attempts, entry) END,
           followed, consequences, key_scope, limits
      FROM gone
    RETURNING id, status, limits
)

-- name: finish
-- Move jobs that ended to the history. Returns the keys whose slots the caller has to release.
{ended}
SELECT id, status, limits FROM kept

-- name: finish_with_slots
-- The same, and release the slots of these jobs in the same round trip. The first row returns the keys that have parked jobs.
{ended}, back AS MATERIALIZED (
    -- As in release.sql, in the statement that ends the jobs: one round trip. What they held is counted when everything
    -- else is written, so that the limit_counters are locked for no longer than they must be; and in the order of their index,
    -- as an engine's session reads them.
    SELECT jsonb_object_agg(held.key, n) AS slots, array_agg(held.key) AS keys
      FROM (SELECT slot.key, count(*) AS n FROM kept, unnest(kept.limits) AS slot (key) GROUP BY slot.key) AS held
), released AS (
    UPDATE windlass.limit_counters
       SET used = CASE WHEN counted THEN greatest(0, used - ((SELECT slots FROM back) ->> key)::int) ELSE used END,
           crowded = crowded AND used > ((SELECT slots FROM back) ->> key)::int, touched_at = windlass.now()
     WHERE key = ANY ((SELECT keys FROM back)::text[]) AND most IS NOT NULL
 RETURNING key, parked
)
SELECT id, status,
       CASE WHEN row_number() OVER () = 1 THEN (SELECT array_agg(key) FROM released WHERE parked) END
  FROM kept

-- name: finish_staying
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
        {history_columns})
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

-- name: advance
-- To the next phase of a pipeline, each under its lease. What somebody asked to cancel stays, for settle.sql to end.
--
--   $1 ids (sorted)   $2 tokens   $3 types   $4 queues   $5 phases   $6 ranks   $7 attempts allowed there   $8 outputs
--   $9 attempt entries   $10 totals   $11 processed   $12 failed   $13 cost   $14 seconds since the start   $15 seconds until it is due
--   $16 limits there
WITH moving AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::int[], $7::int[], $8::json[],
                         $9::json[], $10::int[], $11::int[], $12::int[], $13::bigint[], $14::float8[], $15::float8[], $16::json[])
        AS moving (id, token, type, queue, phase, phase_rank, max_attempts, output, entry, total, processed, failed,
                   cost_cents, elapsed, delay, limits)
), held AS MATERIALIZED (
    SELECT moving.*, jobs.limits AS left_behind
      FROM moving
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[moving.id]) AND jobs.token = moving.token AND NOT jobs.cancel_requested
     ORDER BY moving.id
       FOR UPDATE OF jobs
)
UPDATE windlass.jobs
   SET status = 'queued', token = NULL, worker = NULL, run_at = coalesce(windlass.now() + make_interval(secs => held.delay), least(jobs.run_at, windlass.now())),
       updated_at = windlass.now(),
       type = held.type, queue = held.queue, phase = held.phase, phase_rank = held.phase_rank,
       max_attempts = held.max_attempts, attempt = 0, crashes = 0, output = held.output, error = NULL, reason = NULL,
       attempts = CASE WHEN held.entry IS NULL THEN jobs.attempts
                       ELSE windlass.remember(jobs.attempts, held.entry) END,
       total = held.total, processed = held.processed, failed = held.failed, cost_cents = held.cost_cents,
       started_at = windlass.now() - make_interval(secs => held.elapsed),
       limits = CASE WHEN held.limits IS NOT NULL THEN ARRAY (SELECT json_array_elements_text(held.limits)) END
  FROM held
 WHERE jobs.id = ANY (ARRAY[held.id])
RETURNING jobs.id, jobs.status, held.left_behind

-- name: bury_unreadable
-- End a job with the least that can be written, under its lease: what it left behind could not be stored, or could not be
-- read. Its history of attempts and its error stay as they are.   $1 id   $2 token   $3 reason
UPDATE windlass.jobs
   SET status = 'dead', token = NULL, worker = NULL, reason = $3, finished_at = windlass.now(), updated_at = windlass.now()
 WHERE id = $1 AND token = $2
RETURNING limits

-- name: finished_by_lease
-- Did this very lease finish its job? Asked when the answer to a commit was lost.   $1 id   $2 token
SELECT EXISTS (SELECT FROM windlass.history WHERE id = $1 AND token = $2)

-- name: record_progress
-- Progress of running jobs, each under its lease, ids sorted.   $1 ids   $2 tokens   $3 totals   $4 processed   $5 failed
UPDATE windlass.jobs
   SET total = mark.total, processed = mark.processed, failed = mark.failed, updated_at = windlass.now()
  FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[], $5::int[]) AS mark (id, token, total, processed, failed)
 WHERE jobs.id = ANY (ARRAY[mark.id]) AND jobs.token = mark.token

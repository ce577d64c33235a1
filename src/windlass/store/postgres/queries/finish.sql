-- Finish: the transitions that the holder of a lease writes.

-- fragment: history_columns
-- The columns of the history, in the order in which every statement writes them.
id, token, worker, parent, copied_from, fence, run_at, created_at, updated_at, claimed_at, started_at,
        finished_at, cost_cents, priority, attempt, max_attempts, crashes, rescues, phase_rank, total, processed,
        failed, cancel_requested, status, tenant, queue, type, phase, pipeline, key, trace, reason, input, output,
        error, attempts, followed, follow_ups, key_scope, limits, fingerprint, error_at, error_worker

-- fragment: ended
-- Move jobs that ended to the history, each under its lease. The parameters are those of `finish`.
WITH ending AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::json[], $5::json[], $6::json[], $7::float8[],
                         $8::int[], $9::int[], $10::int[], $11::bigint[], $12::int[], $13::text[], $14::text[])
        AS ending (id, token, status, output, error, entry, elapsed, total, processed, failed, cost_cents, attempt,
                   reason, action)
), deleted AS (
    DELETE FROM windlass.jobs
     USING ending
     WHERE jobs.id = ANY (ARRAY[ending.id]) AND jobs.token = ending.token
       AND ($15::int = 2 OR NOT jobs.followed AND ($15::int = 1 OR jobs.limits IS NULL))
 RETURNING jobs.id, jobs.token, jobs.worker, jobs.parent, jobs.copied_from, jobs.fence, jobs.run_at, jobs.created_at,
           jobs.claimed_at, jobs.priority, jobs.max_attempts, jobs.crashes, jobs.rescues, jobs.phase_rank,
           jobs.cancel_requested, jobs.tenant, jobs.queue, jobs.type, jobs.phase, jobs.pipeline, jobs.key, jobs.trace,
           jobs.input, jobs.error AS last_error, jobs.output AS last_output, jobs.attempts, jobs.followed,
           jobs.follow_ups, jobs.key_scope, jobs.limits, jobs.fingerprint, jobs.error_at, jobs.error_worker,
           ending.status, ending.output, ending.error, ending.entry, ending.elapsed, ending.total, ending.processed, ending.failed, ending.cost_cents, ending.attempt,
           ending.reason, ending.action
), audited AS (
    INSERT INTO windlass.audit (action, job, type, queue, tenant, reason)
    SELECT action, id, type, queue, tenant, reason FROM deleted WHERE action IS NOT NULL
), archived AS (
    INSERT INTO windlass.history (
        {history_columns})
    SELECT id, token, worker, parent, copied_from, fence, run_at, created_at, windlass.now(), claimed_at,
           windlass.now() - make_interval(secs => elapsed), windlass.now(), cost_cents, priority, attempt, max_attempts,
           crashes, rescues, phase_rank, total, processed, failed, cancel_requested, status, tenant, queue, type, phase,
           pipeline, key, trace, reason, input, coalesce(output, last_output), coalesce(error, last_error),
           CASE WHEN entry IS NULL THEN attempts ELSE windlass.remember(attempts, entry) END,
           followed, follow_ups, key_scope, limits, fingerprint, error_at, error_worker
      FROM deleted
    RETURNING id, status, limits
)

-- fragment: figured
-- Add the attempts that ended to the figures of this span, from the rows of the CTE `attempt`.
--
-- The worker's own row is the last lock of its transaction: only a statement that is a transaction of its own adds to it.
-- A transaction of several statements, such as a handler's ctx.transaction(), may lock other rows later. It gives a new
-- id as worker: its row conflicts with nothing, so that it and the completer of the same worker cannot deadlock, and
-- the completer waits for no handler. The groups are sorted, so that two statements lock a worker's rows in one order.
figured AS (
    INSERT INTO windlass.figures AS known (
        at, worker, queue, phase, succeeded, advanced, failed, dead, cancelled, run_seconds, wait_seconds, runs, waits)
    SELECT to_timestamp(floor(extract(epoch FROM windlass.now())::float8 / 10) * 10), worker, queue, phase,
           count(*) FILTER (WHERE outcome = 'succeeded'), count(*) FILTER (WHERE outcome = 'advanced'),
           count(*) FILTER (WHERE outcome = 'failed'), count(*) FILTER (WHERE outcome = 'dead'),
           count(*) FILTER (WHERE outcome = 'cancelled'), coalesce(sum(ran), 0), coalesce(sum(waited), 0),
           windlass.histogram(array_agg(ran)), windlass.histogram(array_agg(waited))
      FROM attempt
     GROUP BY worker, queue, phase
     ORDER BY worker, queue, phase
    ON CONFLICT (at, worker, queue, phase) DO UPDATE
       SET succeeded = known.succeeded + excluded.succeeded, advanced = known.advanced + excluded.advanced,
           failed = known.failed + excluded.failed, dead = known.dead + excluded.dead,
           cancelled = known.cancelled + excluded.cancelled, run_seconds = known.run_seconds + excluded.run_seconds,
           wait_seconds = known.wait_seconds + excluded.wait_seconds,
           runs = windlass.add_up(known.runs, excluded.runs), waits = windlass.add_up(known.waits, excluded.waits)
)

-- fragment: ended_without_worker
-- An end that no worker wrote: a new id stands for the worker, and nothing ran or waited.
SELECT (SELECT gen_random_uuid()) AS worker, queue, phase, NULL::float8 AS ran, NULL::float8 AS waited

-- fragment: waited
-- Seconds from when the job was due to the start of its attempt, `elapsed` seconds ago; never negative.
greatest(0.0, extract(epoch FROM windlass.now() - run_at)::float8 - elapsed)

-- name: finish
-- Move jobs that ended to the history, each under its lease: one statement, one round trip. Returns the keys of the
-- slots that the caller has to release.
--
--   $1  ids, sorted, so that concurrent finishes lock in one order
--   $2  tokens
--   $3  statuses
--   $4  outputs
--   $5  errors
--   $6  attempt entries
--   $7  seconds since the start
--   $8  totals
--   $9  processed
--   $10 failed
--   $11 cost in cents
--   $12 attempts that count
--   $13 reasons
--   $14 actions for the audit; null writes no row
--   $15 reach: which jobs may be finished. 0: plain jobs. 1: also jobs that hold slots; the caller releases these in
--       the same transaction. 2: also followed jobs; the caller writes what follows them in the same transaction.
--
-- A lease that is not current matches nothing, and its id is missing from the result. A row with a token is running (a
-- CHECK of the table). A condition on the status would let the planner walk jobs_running, with all its dead entries,
-- instead of the primary key.
-- ANY makes PostgreSQL look each id up; a join could walk over the whole index (ARCHITECTURE.md, look-ups).
{ended}, attempt AS (
    SELECT CASE WHEN $15::int = 0 THEN worker ELSE (SELECT gen_random_uuid()) END AS worker, queue, phase,
           status AS outcome, elapsed AS ran, {waited} AS waited
      FROM deleted
), {figured}
SELECT id, status, limits FROM archived

-- name: finish_with_slots
-- Move jobs that ended to the history and release their slots, in one round trip. The first row returns the keys that
-- have parked jobs.
--
--   $1 … $15 as in `finish`
--
-- It does what `release_slots` does. The slots are counted when everything else is written, so that the counter rows
-- are locked for no longer than they must be. The rows are locked in the order of their index: an engine's session
-- reads them through it.
{ended}, released_slots AS MATERIALIZED (
    SELECT jsonb_object_agg(held.key, n) AS slots, array_agg(held.key) AS keys
      FROM (SELECT slot.key, count(*) AS n
              FROM archived, unnest(archived.limits) AS slot (key)
             GROUP BY slot.key) AS held
), counters_written AS (
    UPDATE windlass.limit_counters
       SET used = CASE WHEN counted THEN greatest(0, used - ((SELECT slots FROM released_slots) ->> key)::int)
                       ELSE used END,
           full_hint = full_hint AND used > ((SELECT slots FROM released_slots) ->> key)::int,
           touched_at = windlass.now()
     WHERE key = ANY ((SELECT keys FROM released_slots)::text[]) AND most IS NOT NULL
 RETURNING key, has_parked
), attempt AS (
    -- count(): the figures are locked after the counters
    SELECT worker, queue, phase, status AS outcome, elapsed AS ran, {waited} AS waited
      FROM deleted
     WHERE (SELECT count(*) FROM counters_written) >= 0
), {figured}
SELECT id, status,
       CASE WHEN row_number() OVER () = 1 THEN (SELECT array_agg(key) FROM counters_written WHERE has_parked) END
  FROM archived

-- name: finish_staying
-- Write transitions after which the job keeps its row, each under its lease: fail, bury, wait, release, snooze; and the
-- cancel of a job that was to advance.
--
--   $1  ids, sorted
--   $2  tokens
--   $3  statuses
--   $4  seconds until the job is due; null: the job keeps its place
--   $5  attempts that count
--   $6  crashes
--   $7  errors; null keeps the last one
--   $8  attempt entries
--   $9  reasons
--   $10 totals
--   $11 processed
--   $12 failed
--   $13 cost in cents
--   $14 seconds since the start
--   $15 actions for the audit
--   $16 reach, as $15 of `finish`
--   $17 fingerprints of the errors; null keeps the last one
--
-- The rows are locked first and in the order of ids, because an operator's bulk action may hold some of them.
-- A job with a request to cancel that would become claimable again goes to the history as cancelled instead: after a
-- request to cancel, the job does not start again.
WITH ending AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::float8[], $5::int[], $6::int[], $7::json[], $8::json[],
                         $9::text[], $10::int[], $11::int[], $12::int[], $13::bigint[], $14::float8[], $15::text[],
                         $17::text[])
        AS ending (id, token, status, delay, attempt, crashes, error, entry, reason, total, processed, failed,
                   cost_cents, elapsed, action, fingerprint)
), held AS MATERIALIZED (
    SELECT ending.*, jobs.cancel_requested AND ending.status <> 'dead' AS cancelled, jobs.worker, jobs.queue,
           jobs.phase, jobs.run_at
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
           finished_at = CASE WHEN held.status = 'dead' THEN windlass.now() END,
           fingerprint = coalesce(held.fingerprint, jobs.fingerprint),
           error_at = CASE WHEN held.fingerprint IS NULL THEN jobs.error_at ELSE windlass.now() END,
           error_worker = CASE WHEN held.fingerprint IS NULL THEN jobs.error_worker ELSE held.worker END
      FROM held
     WHERE jobs.id = ANY (ARRAY[held.id]) AND NOT held.cancelled
 RETURNING jobs.id, jobs.status, jobs.type, jobs.queue, jobs.tenant, jobs.reason, jobs.limits
), deleted AS (
    DELETE FROM windlass.jobs
     USING held
     WHERE jobs.id = ANY (ARRAY[held.id]) AND held.cancelled
 RETURNING jobs.*
), archived AS (
    INSERT INTO windlass.history (
        {history_columns})
    SELECT deleted.id, deleted.token, deleted.worker, deleted.parent, deleted.copied_from, deleted.fence,
           deleted.run_at, deleted.created_at, windlass.now(), deleted.claimed_at,
           windlass.now() - make_interval(secs => held.elapsed), windlass.now(), held.cost_cents, deleted.priority,
           held.attempt, deleted.max_attempts, held.crashes, deleted.rescues, deleted.phase_rank, held.total,
           held.processed, held.failed, true, 'cancelled', deleted.tenant, deleted.queue, deleted.type,
           deleted.phase, deleted.pipeline, deleted.key, deleted.trace, deleted.reason, deleted.input, deleted.output,
           coalesce(held.error, deleted.error),
           CASE WHEN held.entry IS NULL THEN deleted.attempts ELSE windlass.remember(deleted.attempts, held.entry) END,
           deleted.followed, deleted.follow_ups, deleted.key_scope, deleted.limits,
           coalesce(held.fingerprint, deleted.fingerprint),
           CASE WHEN held.fingerprint IS NULL THEN deleted.error_at ELSE windlass.now() END,
           CASE WHEN held.fingerprint IS NULL THEN deleted.error_worker ELSE held.worker END
      FROM deleted
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
), attempt AS (
    SELECT CASE WHEN $16::int = 0 THEN held.worker ELSE (SELECT gen_random_uuid()) END AS worker, held.queue,
           held.phase, written.status AS outcome, elapsed AS ran, {waited} AS waited
      FROM held
      JOIN (SELECT id, status FROM kept UNION ALL SELECT id, status FROM archived) AS written USING (id)
     WHERE written.status IN ('failed', 'dead', 'cancelled')
), {figured}
SELECT id, status, limits FROM kept UNION ALL SELECT id, status, limits FROM archived

-- name: advance
-- Move jobs to the next phase of their pipeline, each under its lease. A job with a request to cancel stays as it is,
-- for `finish_staying` to end.
--
--   $1  ids, sorted
--   $2  tokens
--   $3  types
--   $4  queues
--   $5  phases
--   $6  phase ranks
--   $7  attempts allowed there
--   $8  outputs
--   $9  attempt entries
--   $10 totals
--   $11 processed
--   $12 failed
--   $13 cost in cents
--   $14 seconds since the start
--   $15 seconds until the job is due
--   $16 limits there
WITH moving AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::int[], $7::int[], $8::json[],
                         $9::json[], $10::int[], $11::int[], $12::int[], $13::bigint[], $14::float8[], $15::float8[],
                         $16::json[])
        AS moving (id, token, type, queue, phase, phase_rank, max_attempts, output, entry, total, processed, failed,
                   cost_cents, elapsed, delay, limits)
), held AS MATERIALIZED (
    SELECT moving.*, jobs.limits AS left_behind, jobs.queue AS left_queue, jobs.phase AS left_phase, jobs.run_at
      FROM moving
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[moving.id]) AND jobs.token = moving.token AND NOT jobs.cancel_requested
     ORDER BY moving.id
       FOR UPDATE OF jobs
), moved AS (
    UPDATE windlass.jobs
       SET status = 'queued', token = NULL, worker = NULL, updated_at = windlass.now(),
           run_at = coalesce(windlass.now() + make_interval(secs => held.delay), least(jobs.run_at, windlass.now())),
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
), attempt AS (
    SELECT (SELECT gen_random_uuid()) AS worker, left_queue AS queue, left_phase AS phase, 'advanced' AS outcome,
           elapsed AS ran, {waited} AS waited
      FROM held
      JOIN moved USING (id)
), {figured}
SELECT id, status, left_behind FROM moved

-- name: bury_unreadable
-- Mark a job dead with the least that can be written, under its lease: its outcome could not be stored, or its row
-- could not be read. Its attempts and its error stay as they are.
--
--   $1 id   $2 token   $3 reason
WITH buried AS (
    UPDATE windlass.jobs
       SET status = 'dead', token = NULL, worker = NULL, reason = $3, finished_at = windlass.now(),
           updated_at = windlass.now()
     WHERE id = $1 AND token = $2
 RETURNING queue, phase, limits
), attempt AS (
    {ended_without_worker}, 'dead' AS outcome FROM buried
), {figured}
SELECT limits FROM buried

-- name: finished_by_lease
-- Check whether exactly this lease finished its job. A worker asks when the answer to a commit was lost.
--
--   $1 id   $2 token
SELECT EXISTS (SELECT FROM windlass.history WHERE id = $1 AND token = $2)

-- name: record_progress
-- Write the progress of running jobs, each under its lease.
--
--   $1 ids, sorted   $2 tokens   $3 totals   $4 processed   $5 failed
UPDATE windlass.jobs
   SET total = mark.total, processed = mark.processed, failed = mark.failed, updated_at = windlass.now()
  FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[], $5::int[]) AS mark (id, token, total, processed, failed)
 WHERE jobs.id = ANY (ARRAY[mark.id]) AND jobs.token = mark.token

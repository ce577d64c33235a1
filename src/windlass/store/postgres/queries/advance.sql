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

-- Limits and rates: counters, slots, tokens, parked jobs.

-- name: declare_limits
-- Write what a program declares about its limits and rates, and pass it on to the counters of keys in use.
--
--   $1 [{name, most, period, burst}]
WITH new AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS new (name text, most int, period float8, burst int)
), declared AS (
    INSERT INTO windlass.limits (name, most, period, burst)
    SELECT name, most, period, burst FROM new ORDER BY name
        ON CONFLICT (name) DO UPDATE
       SET most = excluded.most, period = excluded.period, burst = excluded.burst, declared_at = windlass.now()
     WHERE (limits.most, limits.period, limits.burst) IS DISTINCT FROM (excluded.most, excluded.period, excluded.burst)
 RETURNING name, most, period, burst
), keys AS MATERIALIZED (
    SELECT limit_counters.key, declared.most, declared.period, declared.burst
      FROM declared
      JOIN windlass.limit_counters USING (name)
     ORDER BY limit_counters.key
       FOR UPDATE OF limit_counters
)
UPDATE windlass.limit_counters
   SET most = keys.most, period = keys.period, burst = keys.burst,
       -- A rate that becomes a limit is closed until its running jobs are counted.
       used = CASE WHEN keys.most IS NULL THEN 0
                   WHEN limit_counters.most IS NOT NULL AND limit_counters.counted THEN limit_counters.used
                   ELSE keys.most END,
       counted = keys.most IS NULL OR limit_counters.most IS NOT NULL AND limit_counters.counted
  FROM keys
 WHERE limit_counters.key = keys.key

-- name: limits
-- List the keys in use, each with the number of jobs parked on it. The used part of a bucket are its missing tokens.
--
--   $1 [name or key, …]; []: all
SELECT key, name, most,
       CASE WHEN period IS NULL THEN used
            ELSE burst - windlass.room(most, used, period, burst, next_at, NULL) END AS used,
       period, burst,
       CASE WHEN period IS NULL THEN 0.0 ELSE greatest(0.0, extract(epoch FROM
           next_at - make_interval(secs => (burst - 1) * period) - windlass.now())::float8) END AS free_in,
       greatest(0.0, coalesce(extract(epoch FROM held_until - windlass.now())::float8, 0.0)) AS held,
       (SELECT count(*)::int FROM windlass.jobs WHERE jobs.parked_on = limit_counters.key) AS waiting
  FROM windlass.limit_counters
 WHERE json_array_length(CAST($1 AS json)) = 0
    OR name IN (SELECT json_array_elements_text(CAST($1 AS json)))
    OR key IN (SELECT json_array_elements_text(CAST($1 AS json)))
 ORDER BY waiting DESC, used DESC, key

-- name: make_limit_counters
-- Insert counter rows for keys that have none, if their name is declared.
--
--   $1 [key], sorted
--
-- Running jobs that were claimed before the limit was declared hold slots too. They are not counted here: a job that
-- ends while this statement runs would find no row to release its slot to. So the row starts closed, and `count_slots`
-- opens it.
WITH held AS MATERIALIZED (
    SELECT DISTINCT slot.key
      FROM windlass.jobs
     CROSS JOIN LATERAL unnest(jobs.limits) AS slot (key)
     WHERE jobs.status = 'running' AND jobs.limits IS NOT NULL
)
INSERT INTO windlass.limit_counters (key, name, most, period, burst, used, counted)
SELECT wanted.key, limits.name, limits.most, limits.period, limits.burst,
       CASE WHEN held.key IS NULL OR limits.most IS NULL THEN 0 ELSE limits.most END,
       held.key IS NULL OR limits.most IS NULL
  FROM json_array_elements_text(CAST($1 AS json)) AS wanted (key)
  JOIN windlass.limits ON limits.name = split_part(wanted.key, ':', 1)
  LEFT JOIN held ON held.key = wanted.key
 WHERE NOT EXISTS (SELECT FROM windlass.limit_counters WHERE limit_counters.key = wanted.key OFFSET 0)
 ORDER BY wanted.key
    ON CONFLICT (key) DO NOTHING
RETURNING key, counted

-- name: count_slots
-- Count the slots of counter rows that were made, or changed from a rate to a limit, while jobs of their key were
-- running.
--
-- The rows are committed and closed, so that no claim adds a job. Each running job is locked before it counts: a job
-- that ends later finds the row, counted, and releases its slot. A key with a job that is ending right now, or that a
-- handler's transaction holds, stays closed until the next count: a claim waits for no lock.
WITH uncounted AS MATERIALIZED (
    SELECT key FROM windlass.limit_counters WHERE NOT counted ORDER BY key LIMIT 1000
), running AS MATERIALIZED (
    SELECT jobs.id, jobs.limits
      FROM windlass.jobs
     WHERE jobs.status = 'running' AND jobs.limits && ARRAY (SELECT key FROM uncounted)
), held AS MATERIALIZED (
    SELECT running.id
      FROM running
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[running.id]) AND jobs.token IS NOT NULL
     ORDER BY running.id
       FOR SHARE OF jobs SKIP LOCKED
), slots AS MATERIALIZED (
    SELECT uncounted.key, count(running.id)::int AS n
      FROM uncounted
      LEFT JOIN running ON uncounted.key = ANY (running.limits)
     GROUP BY uncounted.key
    HAVING count(running.id) = count(running.id) FILTER (WHERE running.id IN (SELECT id FROM held))
)
UPDATE windlass.limit_counters SET used = slots.n, counted = true, touched_at = windlass.now()
  FROM slots
 WHERE limit_counters.key = ANY (ARRAY[slots.key]) AND NOT limit_counters.counted

-- fragment: wanted_keys
-- The keys that candidates need. Candidates are the rows of the CTE `chosen`.
wanted AS MATERIALIZED (
    -- The declared keys of each candidate; `nth` counts the candidates of one key.
    SELECT chosen.id, need.key, row_number() OVER (PARTITION BY need.key ORDER BY chosen.place) AS nth
      FROM chosen
     CROSS JOIN LATERAL unnest(chosen.limits) AS need (key)
     WHERE split_part(need.key, ':', 1) IN (SELECT name FROM windlass.limits)
)

-- fragment: admitted
-- Which candidates find room at all of their keys. The CTE `skipped` has jobs, each with a full key, that are to be parked
-- as well.
counter AS MATERIALIZED (
    -- The counter rows of all these keys, locked in the order of keys. `was_full`: a claim left the key full, and not
    -- all of its slots were released since.
    SELECT key, windlass.room(most, used, period, burst, next_at, held_until) AS room,
           full_hint AND used > 0 AS was_full, period, burst, greatest(next_at, windlass.now()) AS next_at, held_until
      FROM windlass.limit_counters
     WHERE key = ANY (ARRAY (SELECT key FROM wanted UNION SELECT key FROM skipped))
     ORDER BY key
       FOR UPDATE SKIP LOCKED
), refused AS MATERIALIZED (
    -- Candidates that meet a full key, or a key without a counter row that this claim could lock.
    SELECT DISTINCT ON (wanted.id) wanted.id, wanted.key
      FROM wanted
      LEFT JOIN counter USING (key)
     WHERE counter.key IS NULL OR wanted.nth > counter.room
     ORDER BY wanted.id, counter.key IS NULL
), taken AS MATERIALIZED (
    SELECT wanted.key, count(*)::int AS n
      FROM wanted
     WHERE wanted.id NOT IN (SELECT id FROM refused)
     GROUP BY wanted.key
), full_now AS MATERIALIZED (
    SELECT counter.key FROM counter LEFT JOIN taken USING (key) WHERE coalesce(taken.n, 0) >= counter.room
)

-- fragment: admission_written
-- Take the slots and tokens, park the rows of the CTE `to_park`, and lease the candidates that were not refused.
counter_change AS MATERIALIZED (
    SELECT counter.key, coalesce(taken.n, 0) AS n,
           counter.key IN (SELECT key FROM full_now) OR counter.was_full AS full_hint,
           counter.key IN (SELECT key FROM to_park) AS parks
      FROM counter
      LEFT JOIN taken USING (key)
), counters_written AS (
    UPDATE windlass.limit_counters
       SET used = CASE WHEN most IS NULL THEN used ELSE used + counter_change.n END,
           next_at = CASE WHEN period IS NULL OR counter_change.n = 0 THEN next_at
                          ELSE greatest(next_at, windlass.now()) + make_interval(secs => counter_change.n * period) END,
           full_hint = counter_change.full_hint, has_parked = limit_counters.has_parked OR counter_change.parks,
           touched_at = windlass.now()
      FROM counter_change
     WHERE limit_counters.key = ANY (ARRAY[counter_change.key])
       AND (counter_change.n > 0 OR counter_change.parks OR limit_counters.full_hint <> counter_change.full_hint)
), parked AS (
    UPDATE windlass.jobs SET parked_on = to_park.key
      FROM to_park
     WHERE jobs.id = ANY (ARRAY[to_park.id])
 RETURNING jobs.id
), claimed AS (
    UPDATE windlass.jobs
       SET {leased}
      FROM chosen
     WHERE jobs.id = ANY (ARRAY[chosen.id]) AND chosen.id NOT IN (SELECT id FROM refused)
 RETURNING {columns}, chosen.aged
)

-- fragment: claimed_with_keys
-- The claimed jobs, each with what the claim learned about keys; without a claimed job, one row with that.
SELECT claimed.*,
       (SELECT array_agg(DISTINCT wanted.key)
          FROM wanted
         WHERE wanted.key NOT IN (SELECT key FROM counter)
           AND NOT EXISTS (SELECT FROM windlass.limit_counters
                            WHERE limit_counters.key = wanted.key OFFSET 0)) AS unknown,
       (SELECT count(*) FROM refused)::int AS refused,
       -- refused because another transaction holds the counter row
       (SELECT count(*) FROM refused WHERE key NOT IN (SELECT key FROM counter))::int AS busy,
       (SELECT count(*) FROM parked)::int AS parked,
       -- seconds until the first of the buckets that refused a job has its next token
       (SELECT min(greatest(0.0, extract(epoch FROM greatest(held_until, next_at + make_interval(
                   secs => (coalesce(taken.n, 0) - burst + 1) * period)) - windlass.now())::float8))
          FROM counter
          LEFT JOIN taken USING (key)
         WHERE period IS NOT NULL AND counter.key IN (SELECT key FROM refused)) AS token_in
  FROM (VALUES (1)) AS always (one)
  LEFT JOIN claimed ON true

-- name: release_slots
-- Release slots. Tokens of a bucket do not come back. Returns the keys on which jobs may be parked.
--
--   $1 [{key, n}], sorted
--
-- The first step locks the rows in the order of keys, so that all transactions lock in one order: in a handler's
-- transaction the planner may read the whole table. A row that is not counted yet stays closed.
WITH released AS MATERIALIZED (
    SELECT key, n FROM json_to_recordset(CAST($1 AS json)) AS released (key text, n int)
), counter AS MATERIALIZED (
    SELECT limit_counters.key
      FROM windlass.limit_counters
     WHERE limit_counters.key = ANY (ARRAY (SELECT key FROM released)) AND most IS NOT NULL
     ORDER BY limit_counters.key
       FOR UPDATE
)
UPDATE windlass.limit_counters
   SET used = CASE WHEN counted THEN greatest(0, used - released.n) ELSE used END,
       full_hint = full_hint AND used > released.n, touched_at = windlass.now()
  FROM counter
  JOIN released USING (key)
 WHERE limit_counters.key = ANY (ARRAY[counter.key])
RETURNING CASE WHEN has_parked THEN limit_counters.key END

-- name: unpark
-- Unpark the first jobs on keys that have room, as many as there is room for.
--
--   $1 [key]
--
-- Only jobs that a live worker could take now are unparked: a job that no worker can run would keep the place of all
-- jobs behind it. A row that another transaction holds is skipped.
WITH closed AS MATERIALIZED (
    {closed}
), {served_types}, first AS MATERIALIZED (
    -- The first jobs on each key, as many as the key has room for.
    SELECT parked.id
      FROM (SELECT key FROM json_array_elements_text(CAST($1 AS json)) AS keys (key)
             WHERE EXISTS (SELECT FROM windlass.jobs WHERE jobs.parked_on IS NOT NULL)) AS freed
     CROSS JOIN LATERAL (
        SELECT jobs.id
          FROM windlass.jobs
         WHERE jobs.parked_on = freed.key
           AND {served}
           AND jobs.type NOT IN (SELECT name FROM closed WHERE kind = 'type')
           AND jobs.queue NOT IN (SELECT name FROM closed WHERE kind = 'queue')
           AND jobs.tenant NOT IN (SELECT name FROM closed WHERE kind = 'tenant')
         ORDER BY jobs.phase_rank, (-jobs.priority), jobs.run_at, jobs.id
         LIMIT coalesce((SELECT windlass.room(most, used, period, burst, next_at, held_until)
                           FROM windlass.limit_counters WHERE limit_counters.key = freed.key), 1000)
           FOR UPDATE SKIP LOCKED) AS parked
), counter_seen AS MATERIALIZED (
    SELECT seen.key, seen.xmin AS version, seen.has_parked,
           EXISTS (SELECT FROM windlass.jobs
                    WHERE jobs.parked_on = seen.key AND jobs.id NOT IN (SELECT id FROM first) OFFSET 0) AS others
      FROM windlass.limit_counters AS seen
     WHERE seen.key = ANY (ARRAY (SELECT json_array_elements_text(CAST($1 AS json))))
), counter_change AS MATERIALIZED (
    -- Clear `has_parked` when no other job is parked on the key: then the next slot that is released needs no unpark.
    -- But only if the counter row is unchanged since this statement's snapshot (same xmin): a concurrent claim that
    -- parked a job has updated the row. Set `has_parked` if it was missing.
    SELECT limit_counters.key, counter_seen.others
      FROM counter_seen
      JOIN windlass.limit_counters ON limit_counters.key = ANY (ARRAY[counter_seen.key])
     WHERE counter_seen.others <> counter_seen.has_parked AND limit_counters.xmin = counter_seen.version
     ORDER BY counter_seen.key
       FOR UPDATE OF limit_counters SKIP LOCKED
), counters_written AS (
    UPDATE windlass.limit_counters SET has_parked = counter_change.others
      FROM counter_change
     WHERE limit_counters.key = ANY (ARRAY[counter_change.key])
)
UPDATE windlass.jobs SET parked_on = NULL
  FROM first
 WHERE jobs.id = ANY (ARRAY[first.id])
RETURNING jobs.id, jobs.queue

-- name: parked_keys
-- List the keys on which jobs are parked, with their room, and the seconds until a bucket has its next token.
--
-- A loose index scan: one descent per key, whatever the number of jobs.
WITH RECURSIVE parked AS (
    (SELECT parked_on AS key FROM windlass.jobs WHERE parked_on IS NOT NULL ORDER BY parked_on LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.parked_on FROM windlass.jobs WHERE jobs.parked_on > parked.key ORDER BY jobs.parked_on LIMIT 1)
      FROM parked
     WHERE parked.key IS NOT NULL
)
SELECT parked.key, coalesce(room, 1000000),
       -- The token after those that the jobs that are unparked now will take: the worker unparks again at that time.
       CASE WHEN period IS NOT NULL OR held_until > windlass.now() THEN greatest(0.0, extract(epoch FROM greatest(
           held_until,
           greatest(next_at, windlass.now()) + make_interval(secs => (room - burst + 1) * coalesce(period, 0))
       ) - windlass.now())::float8) END
  FROM parked
  LEFT JOIN LATERAL (
        SELECT limit_counters.*, windlass.room(most, used, period, burst, next_at, held_until) AS room
          FROM windlass.limit_counters
         WHERE limit_counters.key = parked.key
         LIMIT 1) AS counter ON true
 WHERE parked.key IS NOT NULL

-- name: slot_holders
-- List the jobs that hold a slot of a key, the longest first.
--
--   $1 key   $2 page
SELECT {columns} FROM windlass.jobs
 WHERE jobs.status = 'running' AND $1 = ANY (jobs.limits)
 ORDER BY jobs.claimed_at, jobs.id
 LIMIT $2

-- name: parked_jobs
-- List the jobs that are parked on a key, in the order in which they will be unparked.
--
--   $1 key   $2 page
SELECT {columns} FROM windlass.jobs
 WHERE jobs.parked_on = $1
 ORDER BY jobs.phase_rank, (-jobs.priority), jobs.run_at, jobs.id
 LIMIT $2

-- name: acquire_token
-- Take a token of a bucket if its time comes soon enough. Returns the seconds until its time and whether it was taken;
-- no row if the key is not declared. A limit has no tokens: it only reports whether the key is held back.
--
--   $1 [{key, most}], `most` the longest wait in seconds
WITH wanted AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS wanted (key text, most float8)
), bucket AS MATERIALIZED (
    SELECT limit_counters.key, limit_counters.period, limit_counters.burst, wanted.most,
           greatest(limit_counters.next_at, windlass.now()) AS from_at,
           greatest(0, extract(epoch FROM greatest(
               limit_counters.next_at
                   - make_interval(secs => (limit_counters.burst - 1) * coalesce(limit_counters.period, 0)),
               limit_counters.held_until) - windlass.now())::float8) AS wait
      FROM wanted
      JOIN windlass.limit_counters ON limit_counters.key = ANY (ARRAY[wanted.key])
       FOR UPDATE OF limit_counters
), taken AS (
    UPDATE windlass.limit_counters
       SET next_at = bucket.from_at + make_interval(secs => coalesce(bucket.period, 0)), touched_at = windlass.now()
      FROM bucket
     WHERE limit_counters.key = ANY (ARRAY[bucket.key]) AND bucket.wait <= bucket.most
 RETURNING limit_counters.key
)
SELECT bucket.wait, EXISTS (SELECT FROM taken) FROM bucket

-- name: hold_back
-- Hold these keys back for some seconds: no claim gets a slot or a token of them. A longer hold stays. After the hold a
-- bucket has one token and not a burst.
--
--   $1 [{key, name, seconds}], sorted
WITH held AS MATERIALIZED (
    SELECT limit_counters.key, windlass.now() + make_interval(secs => held.seconds) AS until
      FROM json_to_recordset(CAST($1 AS json)) AS held (key text, seconds float8)
      JOIN windlass.limit_counters ON limit_counters.key = ANY (ARRAY[held.key])
     ORDER BY held.key
       FOR UPDATE OF limit_counters
)
UPDATE windlass.limit_counters
   SET held_until = greatest(limit_counters.held_until, held.until), touched_at = windlass.now(),
       next_at = CASE WHEN period IS NULL THEN next_at
                      ELSE greatest(next_at, held.until + make_interval(secs => (burst - 1) * period)) END
  FROM held
 WHERE limit_counters.key = ANY (ARRAY[held.key])
RETURNING limit_counters.key

-- name: end_hold
-- End the hold on a key. Returns no row if the key was not held.
--
--   $1 [key]
--
-- It is not known any more when the last token was taken: the bucket counts as empty, which no rate exceeds. In the
-- last five seconds of a hold, handlers sleep with tokens for the time after it: those times stay taken.
UPDATE windlass.limit_counters
   SET held_until = NULL, touched_at = windlass.now(),
       next_at = CASE WHEN period IS NULL OR held_until <= windlass.now() + interval '5 seconds' THEN next_at
                      ELSE least(next_at, windlass.now() + make_interval(secs => burst * period)) END
 WHERE key = CAST($1 AS json) ->> 0 AND held_until > windlass.now()
RETURNING key

-- name: hold_left
-- Read the seconds for which a key is still held back.
--
--   $1 [key]
SELECT extract(epoch FROM held_until - windlass.now())::float8
  FROM windlass.limit_counters
 WHERE key = CAST($1 AS json) ->> 0 AND held_until > windlass.now()

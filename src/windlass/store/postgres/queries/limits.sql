-- Limits and rates: counters, slots, tokens, parked jobs.

-- name: declare_limits
-- What a program says about its limits and rates; keys in use learn it too.   $1 [{name, most, period, burst}]
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
       -- A rate that becomes a limit is closed until those who run are counted.
       used = CASE WHEN keys.most IS NULL THEN 0
                   WHEN limit_counters.most IS NOT NULL AND limit_counters.counted THEN limit_counters.used
                   ELSE keys.most END,
       counted = keys.most IS NULL OR limit_counters.most IS NOT NULL AND limit_counters.counted
  FROM keys
 WHERE limit_counters.key = keys.key

-- name: limits
-- Keys in use, with those who wait there. Of a bucket, the tokens that are gone are in use.   $1 [name or key], null: all
SELECT key, name, most,
       CASE WHEN period IS NULL THEN used
            ELSE burst - windlass.room(most, used, period, burst, next_at, NULL) END AS used,
       period, burst,
       CASE WHEN period IS NULL THEN 0.0 ELSE greatest(0.0, extract(epoch FROM
           next_at - make_interval(secs => (burst - 1) * period) - windlass.now())::float8) END AS free_in,
       greatest(0.0, coalesce(extract(epoch FROM held_until - windlass.now())::float8, 0.0)) AS held,
       (SELECT count(*)::int FROM windlass.jobs WHERE jobs.parked_on = limit_counters.key) AS waiting
  FROM windlass.limit_counters
 WHERE CAST($1 AS json) ->> 0 IS NULL OR CAST($1 AS json) ->> 0 IN (name, key)
 ORDER BY waiting DESC, used DESC, key

-- name: make_limit_counters
-- Rows for keys that are met for the first time, where their name is declared.   $1 [key], sorted
--
-- Jobs that run already, claimed when nobody had declared it, count; but not here: one that ends while this is written
-- would find no row to give its slot back to. The row is closed, and count_turnstiles.sql opens it.
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
-- Count the slots of rows that were made, or turned from a rate into a limit, while jobs of their key were running.
--
-- The rows are committed and closed, so that no claim adds a job. Each running job is locked before it counts: one that
-- ends after this finds the row, counted, and gives its slot back. A key of which a job is ending just now, or is held by
-- a handler's transaction, stays closed until the next time: a claim waits for nobody.
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

-- name: release_slots
-- Slots come back. A bucket's tokens are used.   $1 [{key, n}], sorted; returns the keys at which jobs may be parked
--
-- Locked by the first step, in the order of keys, so that all lock in one order: in a handler's transaction the planner may
-- read the whole table. What is not counted yet stays closed.
WITH back AS MATERIALIZED (
    SELECT key, n FROM json_to_recordset(CAST($1 AS json)) AS back (key text, n int)
), stile AS MATERIALIZED (
    SELECT limit_counters.key
      FROM windlass.limit_counters
     WHERE limit_counters.key = ANY (ARRAY (SELECT key FROM back)) AND most IS NOT NULL
     ORDER BY limit_counters.key
       FOR UPDATE
)
UPDATE windlass.limit_counters
   SET used = CASE WHEN counted THEN greatest(0, used - back.n) ELSE used END,
       crowded = crowded AND used > back.n, touched_at = windlass.now()
  FROM stile
  JOIN back USING (key)
 WHERE limit_counters.key = ANY (ARRAY[stile.key])
RETURNING CASE WHEN parked THEN limit_counters.key END

-- name: unpark
-- Let in the first of those who are parked on keys that have room, as many as there is room for: only jobs that some
-- worker could take now, or one that nobody can run would keep the place of all behind it. A row that somebody holds is
-- skipped.   $1 [key]
WITH closed AS MATERIALIZED (
    {closed}
), worker AS MATERIALIZED (
    SELECT types, queues FROM windlass.workers WHERE NOT dead
), served AS MATERIALIZED (
    -- Types that some worker takes from every queue, and those it takes from some: type and queue in one text.
    SELECT ARRAY (SELECT DISTINCT unnest(types) FROM worker WHERE queues IS NULL) AS everywhere,
           ARRAY (SELECT DISTINCT type || E'\x1f' || queue
                    FROM worker, unnest(types) AS type, unnest(queues) AS queue) AS somewhere
), first AS MATERIALIZED (
    SELECT parked.id
      FROM (SELECT key FROM json_array_elements_text(CAST($1 AS json)) AS keys (key)
             WHERE EXISTS (SELECT FROM windlass.jobs WHERE jobs.parked_on IS NOT NULL)) AS freed
     CROSS JOIN LATERAL (
        SELECT jobs.id
          FROM windlass.jobs
         WHERE jobs.parked_on = freed.key
           AND (jobs.type = ANY ((SELECT everywhere FROM served)::text[])
                OR jobs.type || E'\x1f' || jobs.queue = ANY ((SELECT somewhere FROM served)::text[]))
           AND jobs.type NOT IN (SELECT name FROM closed WHERE kind = 'type')
           AND jobs.queue NOT IN (SELECT name FROM closed WHERE kind = 'queue')
           AND jobs.tenant NOT IN (SELECT name FROM closed WHERE kind = 'tenant')
         ORDER BY jobs.phase_rank, (-jobs.priority), jobs.run_at, jobs.id
         LIMIT coalesce((SELECT windlass.room(most, used, period, burst, next_at, held_until)
                           FROM windlass.limit_counters WHERE limit_counters.key = freed.key), 1000)
           FOR UPDATE SKIP LOCKED) AS parked
), given AS MATERIALIZED (
    SELECT seen.key, seen.xmin AS version, seen.parked,
           EXISTS (SELECT FROM windlass.jobs
                    WHERE jobs.parked_on = seen.key AND jobs.id NOT IN (SELECT id FROM first) OFFSET 0) AS others
      FROM windlass.limit_counters AS seen
     WHERE seen.key = ANY (ARRAY (SELECT json_array_elements_text(CAST($1 AS json))))
), turned AS MATERIALIZED (
    -- Nobody else waits there: no need to look again when the next slot comes back. Only where the row is as it was when
    -- this began: who parked somebody since has written it. A mark that is missing is made good.
    SELECT limit_counters.key, given.others
      FROM given
      JOIN windlass.limit_counters ON limit_counters.key = ANY (ARRAY[given.key])
     WHERE given.others <> given.parked AND limit_counters.xmin = given.version
     ORDER BY given.key
       FOR UPDATE OF limit_counters SKIP LOCKED
), marked AS (
    UPDATE windlass.limit_counters SET parked = turned.others FROM turned WHERE limit_counters.key = ANY (ARRAY[turned.key])
)
UPDATE windlass.jobs SET parked_on = NULL
  FROM first
 WHERE jobs.id = ANY (ARRAY[first.id])
RETURNING jobs.id, jobs.queue

-- name: parked_keys
-- The keys at which jobs are parked, with their room, and the seconds until a bucket has its next token.   $1 []
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
       -- Beyond those that are let in now: the worker looks again at that time.
       CASE WHEN period IS NOT NULL OR held_until > windlass.now() THEN greatest(0.0, extract(epoch FROM greatest(
           held_until, greatest(next_at, windlass.now()) + make_interval(secs => (room - burst + 1) * coalesce(period, 0))
       ) - windlass.now())::float8) END
  FROM parked
  LEFT JOIN LATERAL (
        SELECT limit_counters.*, windlass.room(most, used, period, burst, next_at, held_until) AS room
          FROM windlass.limit_counters
         WHERE limit_counters.key = parked.key
         LIMIT 1) AS stile ON true
 WHERE parked.key IS NOT NULL AND CAST($1 AS json) IS NOT NULL

-- name: slot_holders
-- Who holds a slot of a key, the longest first.   $1 key   $2 page
SELECT {columns} FROM windlass.jobs
 WHERE jobs.status = 'running' AND $1 = ANY (jobs.limits)
 ORDER BY jobs.claimed_at, jobs.id
 LIMIT $2

-- name: parked_jobs
-- Who is parked on a key, in the order in which they are let in.   $1 key   $2 page
SELECT {columns} FROM windlass.jobs
 WHERE jobs.parked_on = $1
 ORDER BY jobs.phase_rank, (-jobs.priority), jobs.run_at, jobs.id
 LIMIT $2

-- name: acquire_token
-- A token of a bucket: seconds until its time, and whether it was taken; no row for a key that nobody declared. A limit
-- has no tokens: it only knows whether somebody holds back.   $1 [{key, most}]
WITH wanted AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS wanted (key text, most float8)
), bucket AS MATERIALIZED (
    SELECT limit_counters.key, limit_counters.period, limit_counters.burst, wanted.most,
           greatest(limit_counters.next_at, windlass.now()) AS from_at,
           greatest(0, extract(epoch FROM greatest(
               limit_counters.next_at - make_interval(secs => (limit_counters.burst - 1) * coalesce(limit_counters.period, 0)),
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
-- Nobody gets anything of these keys for so long; a longer hold stays. Afterwards a bucket has one token and not a burst.
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
-- Nobody holds back from this key any more; no row where nobody did.   $1 [key]
--
-- When the last token was taken is not known any more: the bucket counts as empty, which no rate exceeds. In the last
-- five seconds of a hold, handlers sleep with tokens for the time after it: their times stay taken.
UPDATE windlass.limit_counters
   SET held_until = NULL, touched_at = windlass.now(),
       next_at = CASE WHEN period IS NULL OR held_until <= windlass.now() + interval '5 seconds' THEN next_at
                      ELSE least(next_at, windlass.now() + make_interval(secs => burst * period)) END
 WHERE key = CAST($1 AS json) ->> 0 AND held_until > windlass.now()
RETURNING key

-- name: hold_left
-- Seconds for which everybody holds back.   $1 [key]
SELECT extract(epoch FROM held_until - windlass.now())::float8
  FROM windlass.limit_counters
 WHERE key = CAST($1 AS json) ->> 0 AND held_until > windlass.now()

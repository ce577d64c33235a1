-- Limits and rates: counters, slots, tokens, parked jobs.

-- name: declare_limits
-- Write the limits and rates that a program declares; the counters of keys in use get the new values too.
--   ?1 [{name, most, period, burst}]   ?2 now
--
-- A job that was claimed before its limit was declared holds a slot all the same, for its end will release one. Such
-- jobs are counted here, when a rate becomes a limit and when a name is new. From then on every claim counts its own.
UPDATE windlass_limit_counters
   SET most = new.most, period = new.period, burst = new.burst,
       used = CASE WHEN new.most IS NULL THEN 0
                   WHEN windlass_limit_counters.most IS NOT NULL THEN used
                   ELSE (SELECT count(*)
                           FROM windlass_jobs AS jobs INDEXED BY windlass_jobs_running, json_each(jobs.limits) AS need
                          WHERE jobs.status = 'running' AND need.value = windlass_limit_counters.key) END
  FROM (SELECT value ->> 'name' AS name, value ->> 'most' AS most, value ->> 'period' AS period,
               value ->> 'burst' AS burst
          FROM json_each(?1)) AS new
  JOIN windlass_limits AS known ON known.name = new.name
 WHERE windlass_limit_counters.name = new.name
   AND (known.most, known.period, known.burst) IS NOT (new.most, new.period, new.burst)
-- then
INSERT INTO windlass_limit_counters (key, name, most, used, period, burst, touched_at)
SELECT held.key, new.name, new.most, iif(new.most IS NULL, 0, held.jobs), new.period, new.burst, ?2
  FROM (SELECT value ->> 'name' AS name, value ->> 'most' AS most, value ->> 'period' AS period,
               value ->> 'burst' AS burst
          FROM json_each(?1)
         WHERE value ->> 'name' NOT IN (SELECT name FROM windlass_limits)) AS new
  JOIN (SELECT need.value AS key, count(*) AS jobs
          FROM windlass_jobs AS jobs INDEXED BY windlass_jobs_running, json_each(jobs.limits) AS need
         WHERE jobs.status = 'running'
         GROUP BY need.value) AS held
    ON new.name = substr(held.key, 1, instr(held.key || ':', ':') - 1)
 WHERE true
    ON CONFLICT (key) DO NOTHING
-- then
INSERT INTO windlass_limits (name, most, period, burst, declared_at)
SELECT value ->> 'name', value ->> 'most', value ->> 'period', value ->> 'burst', ?2
  FROM json_each(?1)
 WHERE true
    ON CONFLICT (name) DO UPDATE
   SET most = excluded.most, period = excluded.period, burst = excluded.burst, declared_at = excluded.declared_at
 WHERE (windlass_limits.most, windlass_limits.period, windlass_limits.burst)
       IS NOT (excluded.most, excluded.period, excluded.burst)

-- name: limits
-- Keys in use, with the number of jobs parked on them. Of a bucket, the tokens that were taken count as used.
--   ?1 [name or key, …], [] for all   ?2 now
SELECT key, name, most,
       iif(period IS NULL, used, burst - room(most, used, period, burst, next_at, NULL, ?2)) AS used,
       period, burst,
       iif(period IS NULL, 0.0, (token_at(period, burst, next_at, NULL, ?2) - ?2) / 1000000.0) AS free_in,
       max(0.0, coalesce((held_until - ?2) / 1000000.0, 0.0)) AS held,
       (SELECT count(*) FROM windlass_jobs AS jobs WHERE jobs.parked_on = limit_counters.key) AS waiting
  FROM windlass_limit_counters AS limit_counters
 WHERE json_array_length(?1) = 0 OR name IN (SELECT value FROM json_each(?1))
    OR key IN (SELECT value FROM json_each(?1))
 ORDER BY waiting DESC, used DESC, key

-- name: limit_counter
-- The counter of one key.
--   :key
SELECT most, used, period, burst, next_at, held_until FROM windlass_limit_counters WHERE key = :key

-- name: any_limit
-- Whether any limit or rate was ever declared.
SELECT 1 FROM windlass_limits LIMIT 1

-- name: make_limit_counters
-- Write counters for keys that are used for the first time, where their name is declared.
--   ?1 [key]   ?2 now
INSERT INTO windlass_limit_counters (key, name, most, period, burst, touched_at)
SELECT wanted.value, limits.name, limits.most, limits.period, limits.burst, ?2
  FROM json_each(?1) AS wanted
  JOIN windlass_limits AS limits ON limits.name = substr(wanted.value, 1, instr(wanted.value || ':', ':') - 1)
 WHERE NOT EXISTS (SELECT 1 FROM windlass_limit_counters AS limit_counters WHERE limit_counters.key = wanted.value)

-- name: take_slots
-- A claim took slots and tokens.
--   ?1 {key: n}   ?2 now
UPDATE windlass_limit_counters
   SET used = iif(most IS NULL, used, used + taken.value), touched_at = ?2,
       next_at = CASE WHEN period IS NULL THEN next_at
                      ELSE max(next_at, ?2) + CAST(round(taken.value * period * 1000000) AS INTEGER) END
  FROM json_each(?1) AS taken
 WHERE windlass_limit_counters.key = taken.key

-- name: release_slots
-- Release slots; a bucket's tokens do not come back. Returns each key, or null where no job is parked on it.
--   ?1 [{key, n}]   ?2 now
UPDATE windlass_limit_counters SET used = max(0, used - back.n), touched_at = ?2
  FROM (SELECT value ->> 'key' AS key, value ->> 'n' AS n FROM json_each(?1)) AS back
 WHERE windlass_limit_counters.key = back.key AND windlass_limit_counters.most IS NOT NULL
RETURNING iif(EXISTS (SELECT 1 FROM windlass_jobs WHERE parked_on = windlass_limit_counters.key),
              windlass_limit_counters.key, NULL)

-- name: park
-- Park jobs on a key that is full: they leave the index of the claim until `unpark` makes them claimable again.
--   ?1 [[id, key]]
UPDATE windlass_jobs SET parked_on = late.key
  FROM (SELECT value ->> 0 AS id, value ->> 1 AS key FROM json_each(?1)) AS late
 WHERE windlass_jobs.id = late.id

-- name: unpark
-- Make the first jobs claimable that are parked on keys with room, as many as there is room for. Only jobs that a live
-- worker could claim now: a job that no worker can run would otherwise take the place of all jobs behind it.
--   ?1 [key]   :now
--
-- The first jobs of a key are a JSON array: in SQLite neither a subquery of FROM nor a LIMIT can refer to another table
-- of the same FROM.
WITH freed AS MATERIALIZED (
    SELECT wanted.value AS key,
           iif(limit_counters.key IS NULL, 1000, room(most, used, period, burst, next_at, held_until, :now)) AS room
      FROM json_each(?1) AS wanted
      LEFT JOIN windlass_limit_counters AS limit_counters ON limit_counters.key = wanted.value
), closed AS MATERIALIZED (
    {closed}
), first AS MATERIALIZED (
    SELECT head.value AS id
      FROM freed, json_each((
            SELECT json_group_array(parked.id)
              FROM (SELECT jobs.id
                      FROM windlass_jobs AS jobs
                     WHERE jobs.parked_on = freed.key
                       AND {served}
                       AND jobs.type NOT IN (SELECT name FROM closed WHERE kind = 'type')
                       AND jobs.queue NOT IN (SELECT name FROM closed WHERE kind = 'queue')
                       AND jobs.tenant NOT IN (SELECT name FROM closed WHERE kind = 'tenant')
                     ORDER BY jobs.phase_rank, jobs.priority DESC, jobs.run_at, jobs.id
                     LIMIT (SELECT max(room) FROM freed)) AS parked)) AS head
     WHERE freed.room > 0 AND head.key < freed.room
)
UPDATE windlass_jobs SET parked_on = NULL
 WHERE id IN (SELECT id FROM first)
RETURNING id, queue

-- name: parked_keys
-- The keys on which jobs are parked, with their room, and the seconds until a bucket has its next token.
--   ?2 now
--
-- A loose index scan: one descent per key, whatever the number of jobs.
WITH RECURSIVE parked (key) AS (
    SELECT (SELECT min(parked_on) FROM windlass_jobs WHERE parked_on IS NOT NULL)
    UNION ALL
    SELECT (SELECT min(parked_on) FROM windlass_jobs WHERE parked_on > parked.key)
      FROM parked
     WHERE parked.key IS NOT NULL
)
SELECT parked.key,
       CASE WHEN limit_counters.key IS NULL THEN 1000000
            ELSE room(most, used, period, burst, next_at, held_until, ?2) END,
       -- Only of keys without room: the claim that takes an unparked job returns the time of the next token.
       CASE WHEN room(most, used, period, burst, next_at, held_until, ?2) = 0
                 AND (period IS NOT NULL OR held_until > ?2)
            THEN (token_at(period, burst, next_at, held_until, ?2) - ?2) / 1000000.0 END
  FROM parked
  LEFT JOIN windlass_limit_counters AS limit_counters ON limit_counters.key = parked.key
 WHERE parked.key IS NOT NULL

-- name: slot_holders
-- The jobs that hold a slot of a key, those that hold it longest first.
--   :key   :page
SELECT {columns}
  FROM windlass_jobs AS jobs
 WHERE jobs.status = 'running' AND EXISTS (SELECT 1 FROM json_each(jobs.limits) AS need WHERE need.value = :key)
 ORDER BY jobs.claimed_at, jobs.id
 LIMIT :page

-- name: parked_jobs
-- The jobs that are parked on a key, in the order in which they become claimable.
--   :key   :page
SELECT {columns}
  FROM windlass_jobs AS jobs
 WHERE jobs.parked_on = :key
 ORDER BY jobs.phase_rank, jobs.priority DESC, jobs.run_at, jobs.id
 LIMIT :page

-- name: acquire_token
-- Take a token of a bucket: the seconds until its time, and whether it was taken; no row for a key that is not
-- declared. A concurrency limit has no tokens: only its hold counts.
--   ?1 [{key, most}]   ?2 now
SELECT (token_at(period, burst, next_at, held_until, ?2) - ?2) / 1000000.0,
       token_at(period, burst, next_at, held_until, ?2) - ?2 <= (wanted.value ->> 'most') * 1000000
  FROM json_each(?1) AS wanted
  JOIN windlass_limit_counters AS limit_counters ON limit_counters.key = wanted.value ->> 'key'
-- then
UPDATE windlass_limit_counters
   SET next_at = max(next_at, ?2) + CAST(round(coalesce(period, 0) * 1000000) AS INTEGER), touched_at = ?2
  FROM json_each(?1) AS wanted
 WHERE windlass_limit_counters.key = wanted.value ->> 'key'
   AND token_at(period, burst, next_at, held_until, ?2) - ?2 <= (wanted.value ->> 'most') * 1000000

-- name: hold_back
-- Give out nothing of these keys for so many seconds; a longer hold stays. Afterwards a bucket has one token, not a
-- burst.
--   ?1 [{key, name, seconds}]   ?2 now
UPDATE windlass_limit_counters
   SET held_until = max(coalesce(held_until, 0), held.until), touched_at = ?2,
       next_at = CASE WHEN period IS NULL THEN next_at
                      ELSE max(next_at, held.until + CAST(round((burst - 1) * period * 1000000) AS INTEGER)) END
  FROM (SELECT value ->> 'key' AS key, ?2 + CAST(round((value ->> 'seconds') * 1000000) AS INTEGER) AS until
          FROM json_each(?1)) AS held
 WHERE windlass_limit_counters.key = held.key
RETURNING key

-- name: end_hold
-- End the hold of a key; no row where there was none.
--   ?1 [key]   ?2 now
--
-- When the last token was taken is no longer known: the bucket counts as empty, so that the rate is not exceeded. In
-- the last five seconds of a hold, handlers sleep with tokens for the time after it: those times stay taken.
UPDATE windlass_limit_counters
   SET held_until = NULL, touched_at = ?2,
       next_at = CASE WHEN period IS NULL OR held_until <= ?2 + 5000000 THEN next_at
                      ELSE min(next_at, ?2 + CAST(round(burst * period * 1000000) AS INTEGER)) END
 WHERE key = ?1 ->> 0 AND held_until > ?2
RETURNING key

-- name: hold_left
-- The seconds for which a key is still held back.
--   ?1 [key]   ?2 now
SELECT (held_until - ?2) / 1000000.0 FROM windlass_limit_counters WHERE key = ?1 ->> 0 AND held_until > ?2

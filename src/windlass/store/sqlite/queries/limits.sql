-- Limits and rates: counters, slots, tokens, parked jobs.

-- name: declare_limits
-- What a program says about its limits and rates; keys in use learn it too.   ?1 [{name, most, period, burst}]   ?2 now
--
-- Jobs that were claimed before their limit was one hold a slot all the same, for each will give one back: they are
-- counted here, when a rate becomes a limit and when a name is new. From then on every claim counts its own.
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
-- Keys in use, with those who wait there. Of a bucket, the tokens that are gone are in use.
--   ?1 [name or key], null: all   ?2 now
SELECT key, name, most,
       iif(period IS NULL, used, burst - room(most, used, period, burst, next_at, NULL, ?2)) AS used,
       period, burst,
       iif(period IS NULL, 0.0, (token_at(period, burst, next_at, NULL, ?2) - ?2) / 1000000.0) AS free_in,
       max(0.0, coalesce((held_until - ?2) / 1000000.0, 0.0)) AS held,
       (SELECT count(*) FROM windlass_jobs AS jobs WHERE jobs.parked_on = limit_counters.key) AS waiting
  FROM windlass_limit_counters AS limit_counters
 WHERE ?1 ->> 0 IS NULL OR ?1 ->> 0 IN (name, key)
 ORDER BY waiting DESC, used DESC, key

-- name: limit_counter
-- One key.   :key
SELECT most, used, period, burst, next_at, held_until FROM windlass_limit_counters WHERE key = :key

-- name: any_limit
-- Whether any limit or rate was ever declared.
SELECT 1 FROM windlass_limits LIMIT 1

-- name: make_limit_counters
-- Rows for keys that are met for the first time, where their name is declared.   ?1 [key]   ?2 now
INSERT INTO windlass_limit_counters (key, name, most, period, burst, touched_at)
SELECT wanted.value, limits.name, limits.most, limits.period, limits.burst, ?2
  FROM json_each(?1) AS wanted
  JOIN windlass_limits AS limits ON limits.name = substr(wanted.value, 1, instr(wanted.value || ':', ':') - 1)
 WHERE NOT EXISTS (SELECT 1 FROM windlass_limit_counters AS limit_counters WHERE limit_counters.key = wanted.value)

-- name: take_slots
-- A claim took slots and tokens.   ?1 {key: n}   ?2 now
UPDATE windlass_limit_counters
   SET used = iif(most IS NULL, used, used + taken.value), touched_at = ?2,
       next_at = CASE WHEN period IS NULL THEN next_at
                      ELSE max(next_at, ?2) + CAST(round(taken.value * period * 1000000) AS INTEGER) END
  FROM json_each(?1) AS taken
 WHERE windlass_limit_counters.key = taken.key

-- name: release_slots
-- Slots come back. A bucket's tokens are used.   ?1 [{key, n}]   ?2 now; returns the keys at which jobs are parked
UPDATE windlass_limit_counters SET used = max(0, used - back.n), touched_at = ?2
  FROM (SELECT value ->> 'key' AS key, value ->> 'n' AS n FROM json_each(?1)) AS back
 WHERE windlass_limit_counters.key = back.key AND windlass_limit_counters.most IS NOT NULL
RETURNING iif(EXISTS (SELECT 1 FROM windlass_jobs WHERE parked_on = windlass_limit_counters.key), windlass_limit_counters.key, NULL)

-- name: park
-- Jobs whose key is full leave the claim's index, until unpark.sql lets them in.   ?1 [[id, key]]   ?2 now
UPDATE windlass_jobs SET parked_on = late.key
  FROM (SELECT value ->> 0 AS id, value ->> 1 AS key FROM json_each(?1)) AS late
 WHERE windlass_jobs.id = late.id

-- name: unpark
-- Let in the first of those who are parked on keys that have room, as many as there is room for: only jobs that some
-- worker could take now, or one that nobody can run would keep the place of all behind it.   ?1 [key]   ?2 now
--
-- The heads of one key are a JSON array: a subquery of FROM cannot look at its neighbour, and a LIMIT cannot either.
WITH freed AS MATERIALIZED (
    SELECT wanted.value AS key, iif(limit_counters.key IS NULL, 1000, room(most, used, period, burst, next_at, held_until, ?2)) AS room
      FROM json_each(?1) AS wanted
      LEFT JOIN windlass_limit_counters AS limit_counters ON limit_counters.key = wanted.value
), closed AS MATERIALIZED (
    SELECT kind, name FROM windlass_gates WHERE state <> 'open'
    UNION ALL
    SELECT kind, name FROM windlass_budgets WHERE iif(until > ?2, spent, 0) >= cents
), first AS MATERIALIZED (
    SELECT head.value AS id
      FROM freed, json_each((
            SELECT json_group_array(parked.id)
              FROM (SELECT jobs.id
                      FROM windlass_jobs AS jobs
                     WHERE jobs.parked_on = freed.key
                       AND (jobs.type IN (SELECT known.value
                                            FROM windlass_workers AS workers, json_each(workers.types) AS known
                                           WHERE NOT workers.dead AND workers.queues IS NULL)
                            OR (jobs.type, jobs.queue) IN (
                                SELECT known.value, served.value
                                  FROM windlass_workers AS workers, json_each(workers.types) AS known,
                                       json_each(workers.queues) AS served
                                 WHERE NOT workers.dead))
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
-- The keys at which jobs are parked, with their room, and the seconds until a bucket has its next token.   ?2 now
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
       -- The claim that takes what is let in now tells the time of the token after it.
       CASE WHEN room(most, used, period, burst, next_at, held_until, ?2) = 0 AND (period IS NOT NULL OR held_until > ?2)
            THEN (token_at(period, burst, next_at, held_until, ?2) - ?2) / 1000000.0 END
  FROM parked
  LEFT JOIN windlass_limit_counters AS limit_counters ON limit_counters.key = parked.key
 WHERE parked.key IS NOT NULL

-- name: slot_holders
-- Who holds a slot of a key, the longest first.   :key   :page
SELECT {columns}
  FROM windlass_jobs AS jobs
 WHERE jobs.status = 'running' AND EXISTS (SELECT 1 FROM json_each(jobs.limits) AS need WHERE need.value = :key)
 ORDER BY jobs.claimed_at, jobs.id
 LIMIT :page

-- name: parked_jobs
-- Who is parked on a key, in the order in which they are let in.   :key   :page
SELECT {columns}
  FROM windlass_jobs AS jobs
 WHERE jobs.parked_on = :key
 ORDER BY jobs.phase_rank, jobs.priority DESC, jobs.run_at, jobs.id
 LIMIT :page

-- name: acquire_token
-- A token of a bucket: seconds until its time, and whether it was taken; no row for a key that nobody declared. A limit
-- has no tokens: it only knows whether somebody holds back.   ?1 [{key, most}]   ?2 now
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
-- Nobody gets anything of these keys for so long; a longer hold stays. Afterwards a bucket has one token and not a burst.
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
-- Nobody holds back from this key any more; no row where nobody did.   ?1 [key]   ?2 now
--
-- When the last token was taken is not known any more: the bucket counts as empty, which no rate exceeds. In the last
-- five seconds of a hold, handlers sleep with tokens for the time after it: their times stay taken.
UPDATE windlass_limit_counters
   SET held_until = NULL, touched_at = ?2,
       next_at = CASE WHEN period IS NULL OR held_until <= ?2 + 5000000 THEN next_at
                      ELSE min(next_at, ?2 + CAST(round(burst * period * 1000000) AS INTEGER)) END
 WHERE key = ?1 ->> 0 AND held_until > ?2
RETURNING key

-- name: hold_left
-- Seconds for which everybody holds back.   ?1 [key]   ?2 now
SELECT (held_until - ?2) / 1000000.0 FROM windlass_limit_counters WHERE key = ?1 ->> 0 AND held_until > ?2

-- Candidates that have limits: whoever finds room at all its keys is claimed, and who is one too many is parked there.
--
--   $19 at most so many that were passed over are parked; with 0 nobody is, and who is one too many stays where it is
--
-- A turnstile that another claim or a finish holds is skipped: its jobs stay where they are. A key without a row is told
-- in the answer; the caller makes one and claims again. A job counts in the line of each of its keys whether or not it
-- gets in, so that a batch may leave a place empty and never takes one too many. Whoever parks holds the turnstile's
-- lock: a slot that comes back is either counted here, or its transaction sees the parked job.
, chosen AS MATERIALIZED (
    SELECT id, limits, aged, row_number() OVER () AS place
      FROM (SELECT id, limits, true AS aged FROM oldest UNION ALL SELECT id, limits, false FROM picked) AS found
), wanted AS MATERIALIZED (
    SELECT chosen.id, need.key, row_number() OVER (PARTITION BY need.key ORDER BY chosen.place) AS nth
      FROM chosen
     CROSS JOIN LATERAL unnest(chosen.limits) AS need (key)
     WHERE split_part(need.key, ':', 1) IN (SELECT name FROM windlass.limits)
), passed AS MATERIALIZED (
    -- How far each lane was walked: to its last pick, or to its end where there was room for more. As two values, so that
    -- the next step ends there in the index and does not look at what comes after.
    SELECT lane.*,
           CASE WHEN coalesce(last.n, 0) < lane.quota AND (SELECT count(*) FROM chosen) < $2::int THEN 'infinity'
                ELSE coalesce(last.run_at, '-infinity') END AS end_at,
           coalesce(last.id, '00000000-0000-0000-0000-000000000000'::uuid) AS end_id
      FROM lane
      LEFT JOIN LATERAL (
            SELECT picked.run_at, picked.id, count(*) OVER () AS n
              FROM picked
             WHERE picked.lane = lane.place
             ORDER BY picked.run_at DESC, picked.id DESC
             LIMIT 1) AS last ON true
     WHERE $19::int > 0 AND lane.limited AND EXISTS (SELECT FROM crowded)
), excess AS MATERIALIZED (
    SELECT over.id, over.key
      FROM passed
     CROSS JOIN LATERAL (
        SELECT jobs.id, (SELECT need.key FROM unnest(jobs.limits) AS need (key)
                          WHERE need.key IN (SELECT key FROM crowded) LIMIT 1) AS key
          FROM windlass.jobs
         WHERE jobs.queue = passed.queue AND jobs.phase_rank = passed.phase_rank
           AND (-jobs.priority) = passed.urgency AND jobs.tenant = passed.tenant
           AND (jobs.limits IS NOT NULL) = passed.limited
           AND jobs.status IN ('queued', 'failed') AND jobs.parked_on IS NULL
           AND jobs.run_at <= windlass.now()
           AND (jobs.run_at, jobs.id) < (passed.end_at, passed.end_id)
           AND EXISTS (SELECT FROM unnest(jobs.limits) AS need (key) WHERE need.key IN (SELECT key FROM crowded)){sound}
         ORDER BY jobs.run_at, jobs.id
         LIMIT $19::int
           FOR UPDATE SKIP LOCKED) AS over
     LIMIT $19::int
), stile AS MATERIALIZED (
    SELECT key, windlass.room(most, used, period, burst, next_at, held_until) AS room, crowded AND used > 0 AS marked,
           period, burst, greatest(next_at, windlass.now()) AS next_at, held_until
      FROM windlass.turnstiles
     WHERE key = ANY (ARRAY (SELECT key FROM wanted UNION SELECT key FROM excess))
     ORDER BY key
       FOR UPDATE SKIP LOCKED
), refused AS MATERIALIZED (
    SELECT DISTINCT ON (wanted.id) wanted.id, wanted.key
      FROM wanted
      LEFT JOIN stile USING (key)
     WHERE stile.key IS NULL OR wanted.nth > stile.room
     ORDER BY wanted.id, stile.key IS NULL
), taken AS MATERIALIZED (
    SELECT wanted.key, count(*)::int AS n
      FROM wanted
     WHERE wanted.id NOT IN (SELECT id FROM refused)
     GROUP BY wanted.key
), full_now AS MATERIALIZED (
    SELECT stile.key FROM stile LEFT JOIN taken USING (key) WHERE coalesce(taken.n, 0) >= stile.room
), late AS MATERIALIZED (
    SELECT id, key FROM (SELECT id, key FROM refused UNION ALL SELECT id, key FROM excess) AS late
     WHERE $19::int > 0 AND key IN (SELECT key FROM full_now)
), turn AS MATERIALIZED (
    SELECT stile.key, coalesce(taken.n, 0) AS n, stile.key IN (SELECT key FROM full_now) OR stile.marked AS crowded,
           stile.key IN (SELECT key FROM late) AS parks
      FROM stile
      LEFT JOIN taken USING (key)
), turned AS (
    UPDATE windlass.turnstiles
       SET used = CASE WHEN most IS NULL THEN used ELSE used + turn.n END,
           next_at = CASE WHEN period IS NULL OR turn.n = 0 THEN next_at
                          ELSE greatest(next_at, windlass.now()) + make_interval(secs => turn.n * period) END,
           crowded = turn.crowded, parked = turnstiles.parked OR turn.parks, touched_at = windlass.now()
      FROM turn
     WHERE turnstiles.key = ANY (ARRAY[turn.key])
       AND (turn.n > 0 OR turn.parks OR turnstiles.crowded <> turn.crowded)
), parked AS (
    UPDATE windlass.jobs SET parked_on = late.key
      FROM late
     WHERE jobs.id = ANY (ARRAY[late.id])
 RETURNING jobs.id
), claimed AS (
    UPDATE windlass.jobs
       SET status = 'running', token = $3::uuid, fence = fence + 1, worker = $1::uuid, attempt = attempt + 1,
           claimed_at = windlass.now(), started_at = windlass.now(), updated_at = windlass.now()
      FROM chosen
     WHERE jobs.id = ANY (ARRAY[chosen.id]) AND chosen.id NOT IN (SELECT id FROM refused)
 RETURNING {columns}, chosen.aged
)
SELECT claimed.*,
       (SELECT array_agg(DISTINCT wanted.key)
          FROM wanted
         WHERE wanted.key NOT IN (SELECT key FROM stile)
           AND NOT EXISTS (SELECT FROM windlass.turnstiles WHERE turnstiles.key = wanted.key OFFSET 0)) AS unknown,
       (SELECT count(*) FROM refused)::int AS refused,
       (SELECT count(*) FROM refused WHERE key NOT IN (SELECT key FROM stile))::int AS busy,
       (SELECT count(*) FROM parked)::int AS parked,
       -- Seconds until the first of the buckets that turned somebody away has its next token.
       (SELECT min(greatest(0.0, extract(epoch FROM greatest(held_until, next_at + make_interval(
                   secs => (coalesce(taken.n, 0) - burst + 1) * period)) - windlass.now())::float8))
          FROM stile
          LEFT JOIN taken USING (key)
         WHERE period IS NOT NULL AND stile.key IN (SELECT key FROM refused)) AS token_in
  FROM (VALUES (1)) AS always (one)
  LEFT JOIN claimed ON true

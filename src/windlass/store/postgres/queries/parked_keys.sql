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
        SELECT turnstiles.*, windlass.room(most, used, period, burst, next_at, held_until) AS room
          FROM windlass.turnstiles
         WHERE turnstiles.key = parked.key
         LIMIT 1) AS stile ON true
 WHERE parked.key IS NOT NULL AND CAST($1 AS json) IS NOT NULL

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
SELECT parked.key,
       CASE WHEN turnstiles.key IS NULL THEN 1000000
            ELSE windlass.room(most, used, period, burst, next_at, held_until) END,
       CASE WHEN period IS NOT NULL OR held_until > windlass.now() THEN greatest(0.0, extract(epoch FROM greatest(
           next_at - make_interval(secs => (burst - 1) * coalesce(period, 0)), held_until) - windlass.now())::float8) END
  FROM parked
  LEFT JOIN windlass.turnstiles USING (key)
 WHERE parked.key IS NOT NULL AND CAST($1 AS json) IS NOT NULL

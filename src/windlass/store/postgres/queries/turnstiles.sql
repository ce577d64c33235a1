-- Keys in use, with those who wait there. Of a bucket, the tokens that are gone are in use.   $1 [name or key], null: all
SELECT key, name, most,
       CASE WHEN period IS NULL THEN used
            ELSE burst - windlass.room(most, used, period, burst, next_at, NULL) END AS used,
       period, burst,
       CASE WHEN period IS NULL THEN 0.0 ELSE greatest(0.0, extract(epoch FROM
           next_at - make_interval(secs => (burst - 1) * period) - windlass.now())::float8) END AS free_in,
       greatest(0.0, coalesce(extract(epoch FROM held_until - windlass.now())::float8, 0.0)) AS held,
       (SELECT count(*)::int FROM windlass.jobs WHERE jobs.parked_on = turnstiles.key) AS waiting
  FROM windlass.turnstiles
 WHERE CAST($1 AS json) ->> 0 IS NULL OR CAST($1 AS json) ->> 0 IN (name, key)
 ORDER BY waiting DESC, used DESC, key

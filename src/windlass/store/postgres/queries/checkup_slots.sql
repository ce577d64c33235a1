-- Limits whose slots in use are not those of running jobs. A claim and whatever ends an attempt write both in one
-- transaction, so that one snapshot must never show any of these.
WITH held AS MATERIALIZED (
    SELECT taken.key, count(*)::int AS jobs
      FROM windlass.jobs
     CROSS JOIN LATERAL unnest(jobs.limits) AS taken (key)
     WHERE jobs.status = 'running' AND jobs.limits IS NOT NULL
     GROUP BY taken.key
)
SELECT turnstiles.key, turnstiles.used, coalesce(held.jobs, 0)
  FROM windlass.turnstiles
  LEFT JOIN held ON held.key = turnstiles.key
 WHERE turnstiles.most IS NOT NULL AND turnstiles.counted AND turnstiles.used <> coalesce(held.jobs, 0)
 ORDER BY turnstiles.key

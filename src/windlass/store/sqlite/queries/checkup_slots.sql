-- Limits whose slots in use are not those of running jobs. A claim and whatever ends an attempt write both in one
-- transaction, so that one snapshot must never show any of these.
WITH held AS MATERIALIZED (
    SELECT taken.value AS key, count(*) AS jobs
      FROM windlass_jobs AS jobs, json_each(jobs.limits) AS taken
     WHERE jobs.status = 'running' AND jobs.limits IS NOT NULL
     GROUP BY taken.value
)
SELECT turnstiles.key, turnstiles.used, coalesce(held.jobs, 0)
  FROM windlass_turnstiles AS turnstiles
  LEFT JOIN held ON held.key = turnstiles.key
 WHERE turnstiles.most IS NOT NULL AND turnstiles.used <> coalesce(held.jobs, 0)
 ORDER BY turnstiles.key

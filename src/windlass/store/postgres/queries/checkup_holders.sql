-- Workers that are gone, with the jobs they still hold, longest first: dead or silent ones, and ids that no row explains.
SELECT workers.name, count(jobs.id) AS jobs,
       greatest(0, extract(epoch FROM windlass.now() - workers.alive_until))::float8 AS silent
  FROM windlass.workers
  LEFT JOIN windlass.jobs ON jobs.worker = workers.id AND jobs.status = 'running'
 WHERE workers.dead OR workers.alive_until <= windlass.now()
 GROUP BY workers.id
UNION ALL
SELECT NULL, count(*), extract(epoch FROM windlass.now() - max(jobs.updated_at))::float8
  FROM windlass.jobs
 WHERE jobs.status = 'running' AND NOT EXISTS (SELECT FROM windlass.workers WHERE workers.id = jobs.worker)
 GROUP BY jobs.worker
 ORDER BY silent DESC

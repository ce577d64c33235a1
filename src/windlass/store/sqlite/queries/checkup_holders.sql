-- Workers that are gone, with the jobs they still hold, longest first: dead or silent ones, and ids that no row explains.
--   :now
SELECT workers.name, count(jobs.id) AS jobs, max(0, :now - workers.alive_until) / 1000000.0 AS silent
  FROM windlass_workers AS workers
  LEFT JOIN windlass_jobs AS jobs ON jobs.worker = workers.id AND jobs.status = 'running'
 WHERE workers.dead OR workers.alive_until <= :now
 GROUP BY workers.id
UNION ALL
SELECT NULL, count(*), (:now - max(jobs.updated_at)) / 1000000.0
  FROM windlass_jobs AS jobs
 WHERE jobs.status = 'running' AND NOT EXISTS (SELECT 1 FROM windlass_workers AS workers WHERE workers.id = jobs.worker)
 GROUP BY jobs.worker
 ORDER BY silent DESC

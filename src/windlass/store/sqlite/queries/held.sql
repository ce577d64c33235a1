-- The running jobs of one worker, besides those it knows.   :worker   :known jobs
SELECT {columns}
  FROM windlass_jobs AS jobs
 WHERE jobs.worker = :worker AND jobs.status = 'running' AND jobs.id NOT IN (SELECT value FROM json_each(:known))
 ORDER BY jobs.id

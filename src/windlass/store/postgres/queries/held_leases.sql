-- The same as held.sql, without anything that might not be readable.   $1 worker   $2 jobs
SELECT jobs.id, jobs.token, jobs.fence
  FROM windlass.jobs
 WHERE jobs.worker = $1 AND jobs.status = 'running' AND jobs.id <> ALL ($2::uuid[])

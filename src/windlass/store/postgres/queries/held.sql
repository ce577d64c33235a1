-- The running jobs of one worker, besides those it knows.   $1 worker   $2 jobs
SELECT {columns} FROM windlass.jobs WHERE jobs.worker = $1 AND jobs.status = 'running' AND jobs.id <> ALL ($2::uuid[])
 ORDER BY jobs.id

-- The running jobs of one worker.   $1 worker
SELECT {columns} FROM windlass.jobs WHERE jobs.worker = $1 AND jobs.status = 'running' ORDER BY jobs.id

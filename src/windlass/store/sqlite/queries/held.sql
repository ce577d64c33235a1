-- The running jobs of one worker.   :worker
SELECT {columns} FROM windlass_jobs AS jobs WHERE jobs.worker = :worker AND jobs.status = 'running' ORDER BY jobs.id

-- A worker that holds nothing says goodbye. One that still holds a job keeps its row: it marks that job's owner.
DELETE FROM windlass.workers
 WHERE id = $1 AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.worker = $1 AND jobs.status = 'running')

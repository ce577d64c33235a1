-- Every worker, with the leases it holds.
SELECT workers.id, workers.name, workers.started_at, workers.alive_until, workers.dead, workers.idle, workers.queues,
       workers.types, workers.concurrency,
       (SELECT count(*) FROM windlass_jobs AS jobs WHERE jobs.worker = workers.id AND jobs.status = 'running')
  FROM windlass_workers AS workers
 ORDER BY workers.started_at, workers.id

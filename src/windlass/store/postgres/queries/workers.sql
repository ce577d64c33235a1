SELECT id, name, started_at, alive_until, dead, idle, queues, types, concurrency,
       (SELECT count(*)::int FROM windlass.jobs WHERE jobs.worker = workers.id AND jobs.status = 'running') AS running
  FROM windlass.workers
 ORDER BY started_at, id

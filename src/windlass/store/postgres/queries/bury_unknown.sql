-- Jobs that name a worker nobody knows (a restored backup, a row deleted by hand) belong to the dead: give that worker a
-- row that says so, and the rescue finds them like all others. Rarely: it walks every entry of jobs_running.
INSERT INTO windlass.workers (id, name, alive_until, dead, concurrency, types)
SELECT DISTINCT jobs.worker, 'unknown', windlass.now(), true, 0, '{}'::text[]
  FROM windlass.jobs
 WHERE jobs.status = 'running' AND NOT EXISTS (SELECT FROM windlass.workers WHERE workers.id = jobs.worker)
ON CONFLICT (id) DO NOTHING

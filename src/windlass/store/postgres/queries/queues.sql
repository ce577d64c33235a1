-- Every queue with its jobs by state, and since when its oldest due job waits.
SELECT queue,
       count(*) FILTER (WHERE status = 'queued') AS queued,
       count(*) FILTER (WHERE status = 'running') AS running,
       count(*) FILTER (WHERE status = 'failed') AS failed,
       count(*) FILTER (WHERE status = 'waiting') AS waiting,
       count(*) FILTER (WHERE status = 'dead') AS dead,
       extract(epoch FROM windlass.now() - min(run_at)
           FILTER (WHERE status IN ('queued', 'failed') AND run_at <= windlass.now() AND run_at > '-infinity'))::float8 AS lag
  FROM windlass.jobs
 GROUP BY queue
 ORDER BY queue

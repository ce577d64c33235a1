-- Every queue with its jobs by state, and since when its oldest due job waits.   :now
SELECT queue,
       sum(status = 'queued') AS queued,
       sum(status = 'running') AS running,
       sum(status = 'failed') AS failed,
       sum(status = 'waiting') AS waiting,
       sum(status = 'dead') AS dead,
       (:now - min(run_at) FILTER (WHERE status IN ('queued', 'failed') AND run_at <= :now)) / 1000000.0 AS lag
  FROM windlass_jobs
 GROUP BY queue
 ORDER BY queue

-- Due jobs that no live worker would claim, by type and queue: grouped first, so that workers are asked once per group.
WITH due AS MATERIALIZED (
    SELECT type, queue, count(*) AS jobs, min(run_at) AS oldest
      FROM windlass.jobs
     WHERE status IN ('queued', 'failed') AND run_at <= windlass.now() AND run_at > '-infinity'
     GROUP BY type, queue
)
SELECT type, queue, jobs, extract(epoch FROM windlass.now() - oldest)::float8 AS lag
  FROM due
 WHERE NOT EXISTS (
        SELECT FROM windlass.workers
         WHERE NOT dead AND alive_until > windlass.now()
           AND due.type = ANY (types) AND (queues IS NULL OR due.queue = ANY (queues)))
 ORDER BY jobs DESC, type, queue
 LIMIT 20

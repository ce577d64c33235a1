-- Due jobs that no live worker would claim, by type and queue: grouped first, so that workers are asked once per group.
--   :now
WITH due AS (
    SELECT type, queue, count(*) AS jobs, min(run_at) AS oldest
      FROM windlass_jobs
     WHERE status IN ('queued', 'failed') AND run_at <= :now
     GROUP BY type, queue
)
SELECT type, queue, jobs, (:now - oldest) / 1000000.0 AS lag
  FROM due
 WHERE NOT EXISTS (
        SELECT 1 FROM windlass_workers AS workers
         WHERE NOT workers.dead AND workers.alive_until > :now
           AND due.type IN (SELECT value FROM json_each(workers.types))
           AND (workers.queues IS NULL OR due.queue IN (SELECT value FROM json_each(workers.queues))))
 ORDER BY jobs DESC, type, queue
 LIMIT 20

-- Where claimable jobs are: one row per (queue, phase rank, priority, tenant), in the order of a claim, and whether there
-- are jobs without limits and jobs with limits.
--
--   :queues a JSON array, or null for every queue   :now
--
-- A loose index scan: each min() or max() is one descent of the claim's index, so that the cost is a few descents per
-- lane and not one row per job. Level by level, because SQLite compares only the first column of a row value with a
-- value of a recursive table.
WITH RECURSIVE served (queue) AS (
    SELECT (SELECT min(queue) FROM windlass_jobs WHERE status IN ('queued', 'failed') AND parked_on IS NULL)
    UNION ALL
    SELECT (SELECT min(queue) FROM windlass_jobs
             WHERE status IN ('queued', 'failed') AND parked_on IS NULL AND queue > served.queue)
      FROM served
     WHERE served.queue IS NOT NULL
), ranked (queue, phase_rank) AS (
    SELECT served.queue, (SELECT min(phase_rank) FROM windlass_jobs
                           WHERE status IN ('queued', 'failed') AND parked_on IS NULL AND queue = served.queue)
      FROM served
     WHERE served.queue IS NOT NULL
       AND (:queues IS NULL OR served.queue IN (SELECT value FROM json_each(:queues)))
       -- place of gates and budgets: everything, a queue
       AND NOT EXISTS (SELECT 1 FROM windlass_gates WHERE kind = 'all' AND state <> 'open')
       AND NOT EXISTS (SELECT 1 FROM windlass_gates WHERE kind = 'queue' AND name = served.queue AND state <> 'open')
       AND NOT EXISTS (SELECT 1 FROM windlass_budgets
                        WHERE kind = 'queue' AND name = served.queue AND iif(until > :now, spent, 0) >= cents)
    UNION ALL
    SELECT ranked.queue, (SELECT min(phase_rank) FROM windlass_jobs
                           WHERE status IN ('queued', 'failed') AND parked_on IS NULL AND queue = ranked.queue
                             AND phase_rank > ranked.phase_rank)
      FROM ranked
     WHERE ranked.phase_rank IS NOT NULL
), level (queue, phase_rank, priority) AS (
    SELECT ranked.queue, ranked.phase_rank,
           (SELECT max(priority) FROM windlass_jobs
             WHERE status IN ('queued', 'failed') AND parked_on IS NULL
               AND queue = ranked.queue AND phase_rank = ranked.phase_rank)
      FROM ranked
     WHERE ranked.phase_rank IS NOT NULL
    UNION ALL
    SELECT level.queue, level.phase_rank,
           (SELECT max(priority) FROM windlass_jobs
             WHERE status IN ('queued', 'failed') AND parked_on IS NULL
               AND queue = level.queue AND phase_rank = level.phase_rank AND priority < level.priority)
      FROM level
     WHERE level.priority IS NOT NULL
), shared (queue, phase_rank, priority, tenant) AS (
    SELECT level.queue, level.phase_rank, level.priority,
           (SELECT min(tenant) FROM windlass_jobs
             WHERE status IN ('queued', 'failed') AND parked_on IS NULL
               AND queue = level.queue AND phase_rank = level.phase_rank AND priority = level.priority)
      FROM level
     WHERE level.priority IS NOT NULL
    UNION ALL
    SELECT shared.queue, shared.phase_rank, shared.priority,
           (SELECT min(tenant) FROM windlass_jobs
             WHERE status IN ('queued', 'failed') AND parked_on IS NULL
               AND queue = shared.queue AND phase_rank = shared.phase_rank AND priority = shared.priority
               AND tenant > shared.tenant)
      FROM shared
     WHERE shared.tenant IS NOT NULL
)
SELECT shared.queue, shared.phase_rank, shared.priority, shared.tenant,
       EXISTS (SELECT 1 FROM windlass_jobs
                WHERE status IN ('queued', 'failed') AND parked_on IS NULL
                  AND queue = shared.queue AND phase_rank = shared.phase_rank AND priority = shared.priority
                  AND tenant = shared.tenant AND (limits IS NOT NULL) = 0) AS plain,
       EXISTS (SELECT 1 FROM windlass_jobs
                WHERE status IN ('queued', 'failed') AND parked_on IS NULL
                  AND queue = shared.queue AND phase_rank = shared.phase_rank AND priority = shared.priority
                  AND tenant = shared.tenant AND (limits IS NOT NULL) = 1) AS limited
  FROM shared
 -- place of gates and budgets: a tenant
 WHERE shared.tenant IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM windlass_gates WHERE kind = 'tenant' AND name = shared.tenant AND state <> 'open')
   AND NOT EXISTS (SELECT 1 FROM windlass_budgets
                    WHERE kind = 'tenant' AND name = shared.tenant AND iif(until > :now, spent, 0) >= cents)
 ORDER BY shared.phase_rank, -shared.priority, shared.queue, shared.tenant

-- Where claimable jobs are: one row per (queue, phase rank, priority), in the order of a claim.
--
--   :queues a JSON array, or null for every queue
--
-- A loose index scan: each min() or max() is one descent of the claim's index, so that the cost is a few descents per
-- lane and not one row per job. Three levels, because SQLite compares only the first column of a row value with a
-- value of a recursive table.
WITH RECURSIVE served (queue) AS (
    SELECT (SELECT min(queue) FROM windlass_jobs WHERE status IN ('queued', 'failed'))
    UNION ALL
    SELECT (SELECT min(queue) FROM windlass_jobs WHERE status IN ('queued', 'failed') AND queue > served.queue)
      FROM served
     WHERE served.queue IS NOT NULL
), ranked (queue, phase_rank) AS (
    SELECT served.queue, (SELECT min(phase_rank) FROM windlass_jobs
                           WHERE status IN ('queued', 'failed') AND queue = served.queue)
      FROM served
     -- place of gates: everything, a queue
     WHERE served.queue IS NOT NULL
       AND (:queues IS NULL OR served.queue IN (SELECT value FROM json_each(:queues)))
       AND NOT EXISTS (SELECT 1 FROM windlass_gates WHERE kind = 'all' AND state <> 'open')
       AND served.queue NOT IN (SELECT name FROM windlass_gates WHERE kind = 'queue' AND state <> 'open')
    UNION ALL
    SELECT ranked.queue, (SELECT min(phase_rank) FROM windlass_jobs
                           WHERE status IN ('queued', 'failed') AND queue = ranked.queue
                             AND phase_rank > ranked.phase_rank)
      FROM ranked
     WHERE ranked.phase_rank IS NOT NULL
), lane (queue, phase_rank, priority) AS (
    SELECT ranked.queue, ranked.phase_rank,
           (SELECT max(priority) FROM windlass_jobs
             WHERE status IN ('queued', 'failed') AND queue = ranked.queue AND phase_rank = ranked.phase_rank)
      FROM ranked
     WHERE ranked.phase_rank IS NOT NULL
    UNION ALL
    SELECT lane.queue, lane.phase_rank,
           (SELECT max(priority) FROM windlass_jobs
             WHERE status IN ('queued', 'failed') AND queue = lane.queue AND phase_rank = lane.phase_rank
               AND priority < lane.priority)
      FROM lane
     WHERE lane.priority IS NOT NULL
)
SELECT queue, phase_rank, priority
  FROM lane
 WHERE priority IS NOT NULL
 ORDER BY phase_rank, -priority, queue

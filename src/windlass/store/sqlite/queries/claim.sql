-- Claim: where due jobs are, and leasing them.

-- name: lanes
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

-- name: claim
-- Take the jobs that due.sql named, in the same transaction: BEGIN IMMEDIATE lets no other writer in between.
--
--   :ids a JSON array   :worker   :token   :now
UPDATE windlass_jobs
   SET status = 'running', token = :token, fence = fence + 1, worker = :worker, attempt = attempt + 1,
       claimed_at = :now, started_at = :now, updated_at = :now
 WHERE id IN (SELECT value FROM json_each(:ids)) AND status IN ('queued', 'failed')

-- name: due_jobs
-- The due jobs of one lane in the order of a claim, not yet taken: the writer's lock keeps them until claim.sql.
--
--   :queue, :phase_rank, :priority, :tenant, :limited the lane   :limit at most so many, -1 for all
--   :types a JSON array   :suspects with, without or only   :rest in microseconds   :now   :until how far to look
--   :after_at, :after_id begin after this job   :full keys that are known to have no room, a JSON array, or null
--
-- The claim's index gives the order of `run_at`, so that the scan stops at the limit. No index gives the order of
-- `created_at`: the steady pace claims ten jobs a minute and can afford to sort the lane. `lanes` checks the gates of
-- queues and tenants, and budgets.
SELECT jobs.{order}, jobs.id, jobs.limits
  FROM windlass_jobs AS jobs
 WHERE jobs.queue = :queue AND jobs.phase_rank = :phase_rank AND jobs.priority = :priority AND jobs.tenant = :tenant
   AND (jobs.limits IS NOT NULL) = :limited AND jobs.parked_on IS NULL
   AND jobs.status IN ('queued', 'failed') AND jobs.run_at <= :until
   AND (jobs.{order}, jobs.id) > (:after_at, :after_id)
   -- place of time: what is due now, and after a clock was set back what had been due by its own times
   AND (jobs.run_at <= :now OR jobs.run_at <= max(jobs.created_at, jobs.updated_at))
   -- place of types: unknown ones are skipped without a lease or an attempt
   AND jobs.type IN (SELECT value FROM json_each(:types))
   -- place of gates: a type
   AND jobs.type NOT IN (SELECT name FROM windlass_gates WHERE kind = 'type' AND state <> 'open')
   AND CASE :suspects WHEN 'with' THEN 1 WHEN 'only' THEN jobs.crashes > 0 ELSE jobs.crashes = 0 END
   AND (jobs.updated_at <= :now - :rest OR jobs.updated_at > :now)
   AND NOT jobs.cancel_requested
   -- place of rows that no program can read or claim: written before the triggers of the table, or past them
   AND jobs.fence < 9223372036854775806 AND jobs.attempt < 2147483646 AND jobs.run_at >= -62135596800000000
   AND jobs.created_at BETWEEN -62135596800000000 AND 253402300799000000
   AND (jobs.finished_at IS NULL OR jobs.finished_at BETWEEN -62135596800000000 AND 253402300799000000)
   -- place of limits: keys that are full
   AND (:full IS NULL OR NOT EXISTS (SELECT 1 FROM json_each(jobs.limits) AS need
                                      WHERE need.value IN (SELECT value FROM json_each(:full))))
 ORDER BY jobs.{order}, jobs.id
 LIMIT :limit

-- name: next_due_in_lane
-- When the next job of one lane becomes due, for a worker that wants to sleep until then. Where that job had been
-- due when it was `written`, the clock was set back since; a time years ahead is nobody's clock.
--
--   :queue, :phase_rank, :priority, :tenant, :limited the lane   :types a JSON array   :now
SELECT jobs.run_at,
       CASE WHEN jobs.run_at <= max(jobs.created_at, jobs.updated_at)
                 AND max(jobs.created_at, jobs.updated_at) < :now + 315360000000000
            THEN max(jobs.created_at, jobs.updated_at) END AS written
  FROM windlass_jobs AS jobs
 WHERE jobs.queue = :queue AND jobs.phase_rank = :phase_rank AND jobs.priority = :priority AND jobs.tenant = :tenant
   AND (jobs.limits IS NOT NULL) = :limited AND jobs.parked_on IS NULL
   AND jobs.status IN ('queued', 'failed') AND jobs.run_at > :now
   AND jobs.type IN (SELECT value FROM json_each(:types))
   AND NOT jobs.cancel_requested
 ORDER BY jobs.run_at
 LIMIT 1

-- name: claimed_jobs
-- What a claim took. Apart from claim.sql, because RETURNING knows no alias of its table.
SELECT {columns}
  FROM windlass_jobs AS jobs
 WHERE jobs.status = 'running' AND jobs.worker = :worker AND jobs.token = :token

-- name: worker_is_alive
-- A worker that was declared dead while it was frozen claims nothing: its jobs would only have to be rescued.   :worker
SELECT (SELECT seen_at FROM windlass_installation) FROM windlass_workers WHERE id = :worker AND NOT dead

-- name: weights
-- The weights of tenants that have one.
SELECT name, weight FROM windlass_tenants

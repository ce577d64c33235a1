-- Claim: where due jobs are, and how they are leased to a worker.

-- fragment: claimable_status
-- The states in which a job waits for a claim.
status IN ('queued', 'failed')

-- fragment: in_claim_index
-- The rows of the index windlass_jobs_claim: jobs that wait for a claim and are not parked.
{claimable_status} AND parked_on IS NULL

-- fragment: readable
-- A row that a program can read and claim. Other rows were written before the table had its triggers, or past them.
fence < 9223372036854775806 AND attempt < 2147483646 AND run_at >= -62135596800000000
   AND created_at BETWEEN -62135596800000000 AND 253402300799000000
   AND (finished_at IS NULL OR finished_at BETWEEN -62135596800000000 AND 253402300799000000)

-- fragment: due_by_itself
-- A job that is due; and, after the clock was set back, a job that was due by its own times.   :now
(jobs.run_at <= :now OR jobs.run_at <= max(jobs.created_at, jobs.updated_at))

-- name: lanes
-- The lanes with claimable jobs: one row per (queue, phase rank, priority, tenant), in the order of a claim, and
-- whether it has jobs without limits and jobs with limits.
--   :queues a JSON array, or null for every queue   :now
--
-- A loose index scan: each min() or max() is one descent of the claim's index, so that the cost is a few descents per
-- lane and not one row per job. It goes level by level, because SQLite compares only the first column of a row value
-- with a value of a recursive table.
WITH RECURSIVE served (queue) AS (
    SELECT (SELECT min(queue) FROM windlass_jobs WHERE {in_claim_index})
    UNION ALL
    SELECT (SELECT min(queue) FROM windlass_jobs
             WHERE {in_claim_index} AND queue > served.queue)
      FROM served
     WHERE served.queue IS NOT NULL
), ranked (queue, phase_rank) AS (
    SELECT served.queue, (SELECT min(phase_rank) FROM windlass_jobs
                           WHERE {in_claim_index} AND queue = served.queue)
      FROM served
     WHERE served.queue IS NOT NULL
       AND (:queues IS NULL OR served.queue IN (SELECT value FROM json_each(:queues)))
       -- gates and budgets: of everything, of the queue
       AND NOT EXISTS (SELECT 1 FROM ({closed}) WHERE kind = 'all')
       AND NOT EXISTS (SELECT 1 FROM ({closed}) WHERE kind = 'queue' AND name = served.queue)
    UNION ALL
    SELECT ranked.queue, (SELECT min(phase_rank) FROM windlass_jobs
                           WHERE {in_claim_index} AND queue = ranked.queue
                             AND phase_rank > ranked.phase_rank)
      FROM ranked
     WHERE ranked.phase_rank IS NOT NULL
), level (queue, phase_rank, priority) AS (
    SELECT ranked.queue, ranked.phase_rank,
           (SELECT max(priority) FROM windlass_jobs
             WHERE {in_claim_index}
               AND queue = ranked.queue AND phase_rank = ranked.phase_rank)
      FROM ranked
     WHERE ranked.phase_rank IS NOT NULL
    UNION ALL
    SELECT level.queue, level.phase_rank,
           (SELECT max(priority) FROM windlass_jobs
             WHERE {in_claim_index}
               AND queue = level.queue AND phase_rank = level.phase_rank AND priority < level.priority)
      FROM level
     WHERE level.priority IS NOT NULL
), shared (queue, phase_rank, priority, tenant) AS (
    SELECT level.queue, level.phase_rank, level.priority,
           (SELECT min(tenant) FROM windlass_jobs
             WHERE {in_claim_index}
               AND queue = level.queue AND phase_rank = level.phase_rank AND priority = level.priority)
      FROM level
     WHERE level.priority IS NOT NULL
    UNION ALL
    SELECT shared.queue, shared.phase_rank, shared.priority,
           (SELECT min(tenant) FROM windlass_jobs
             WHERE {in_claim_index}
               AND queue = shared.queue AND phase_rank = shared.phase_rank AND priority = shared.priority
               AND tenant > shared.tenant)
      FROM shared
     WHERE shared.tenant IS NOT NULL
)
SELECT shared.queue, shared.phase_rank, shared.priority, shared.tenant,
       EXISTS (SELECT 1 FROM windlass_jobs
                WHERE {in_claim_index}
                  AND queue = shared.queue AND phase_rank = shared.phase_rank AND priority = shared.priority
                  AND tenant = shared.tenant AND (limits IS NOT NULL) = 0) AS plain,
       EXISTS (SELECT 1 FROM windlass_jobs
                WHERE {in_claim_index}
                  AND queue = shared.queue AND phase_rank = shared.phase_rank AND priority = shared.priority
                  AND tenant = shared.tenant AND (limits IS NOT NULL) = 1) AS limited
  FROM shared
 -- gates and budgets of the tenant
 WHERE shared.tenant IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM ({closed}) WHERE kind = 'tenant' AND name = shared.tenant)
 ORDER BY shared.phase_rank, -shared.priority, shared.queue, shared.tenant

-- name: claim
-- Lease the jobs that `due_jobs` returned, in the same transaction: after BEGIN IMMEDIATE no other connection writes.
--   :ids a JSON array   :worker   :token   :now
UPDATE windlass_jobs
   SET status = 'running', token = :token, fence = fence + 1, worker = :worker, attempt = attempt + 1,
       claimed_at = :now, started_at = :now, updated_at = :now
 WHERE id IN (SELECT value FROM json_each(:ids)) AND {claimable_status}

-- name: due_jobs
-- The due jobs of one lane in the order of a claim. They are not leased yet: the write lock protects them until
-- `claim`.
--   :queue, :phase_rank, :priority, :tenant, :limited the lane   :limit the most jobs to return, -1 for all
--   :types a JSON array   :suspects with, without or only   :now   :until the last run_at to read
--   :untouched for how many microseconds the row must not have changed
--   :after_at, :after_id begin after this job   :full keys that are known to have no room, a JSON array, or null
--
-- The claim's index has the order of `run_at`, so that the scan stops at the limit. No index has the order of
-- `created_at`: the steady pace claims ten jobs a minute and can afford to sort the lane. `lanes` checks the gates of
-- queues and tenants, and budgets.
SELECT jobs.{order}, jobs.id, jobs.limits
  FROM windlass_jobs AS jobs
 WHERE jobs.queue = :queue AND jobs.phase_rank = :phase_rank AND jobs.priority = :priority AND jobs.tenant = :tenant
   AND (jobs.limits IS NOT NULL) = :limited AND {in_claim_index} AND jobs.run_at <= :until
   AND (jobs.{order}, jobs.id) > (:after_at, :after_id)
   -- time: due now; and, after the clock was set back, due by its own times
   AND {due_by_itself}
   -- types: a job of an unknown type is skipped, without a lease or an attempt
   AND jobs.type IN (SELECT value FROM json_each(:types))
   -- gates of types
   AND jobs.type NOT IN (SELECT name FROM ({closed}) WHERE kind = 'type')
   AND CASE :suspects WHEN 'with' THEN 1 WHEN 'only' THEN jobs.crashes > 0 ELSE jobs.crashes = 0 END
   AND (jobs.updated_at <= :now - :untouched OR jobs.updated_at > :now)
   AND NOT jobs.cancel_requested
   AND {readable}
   -- limits: no key that is full
   AND (:full IS NULL OR NOT EXISTS (SELECT 1 FROM json_each(jobs.limits) AS need
                                      WHERE need.value IN (SELECT value FROM json_each(:full))))
 ORDER BY jobs.{order}, jobs.id
 LIMIT :limit

-- name: next_due_in_lane
-- When the next job of one lane becomes due, for a worker that sleeps until then. `written` is set where that job had
-- been due when it was written: the clock was set back since. A time that is ten years ahead is not taken for a
-- clock's.
--   :queue, :phase_rank, :priority, :tenant, :limited the lane   :types a JSON array   :now
SELECT jobs.run_at,
       CASE WHEN jobs.run_at <= max(jobs.created_at, jobs.updated_at)
                 AND max(jobs.created_at, jobs.updated_at) < :now + 315360000000000
            THEN max(jobs.created_at, jobs.updated_at) END AS written
  FROM windlass_jobs AS jobs
 WHERE jobs.queue = :queue AND jobs.phase_rank = :phase_rank AND jobs.priority = :priority AND jobs.tenant = :tenant
   AND (jobs.limits IS NOT NULL) = :limited AND {in_claim_index} AND jobs.run_at > :now
   AND jobs.type IN (SELECT value FROM json_each(:types))
   AND NOT jobs.cancel_requested
 ORDER BY jobs.run_at
 LIMIT 1

-- name: claimed_jobs
-- The jobs that `claim` leased. A statement of its own, because RETURNING accepts no alias of its table.
--   :worker   :token
SELECT {columns}
  FROM windlass_jobs AS jobs
 WHERE jobs.status = 'running' AND jobs.worker = :worker AND jobs.token = :token

-- name: worker_is_alive
-- A worker that was marked dead while it was frozen claims nothing: its jobs would have to be rescued again.
--   :worker
SELECT (SELECT seen_at FROM windlass_installation) FROM windlass_workers WHERE id = :worker AND NOT dead

-- name: weights
-- The weights of tenants that have one.
SELECT name, weight FROM windlass_tenants

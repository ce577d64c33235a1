-- Counts: jobs by state, queue and tenant.
--
-- No statement here reads a row per job. Names are found by loose index scans. A number is counted up to a bound and one
-- more: then it means "more".
--
-- The bound is 10,000 (COUNTED in model/rows.py). The names of a list share 10,000 among them, and counts
-- ten of each at least: otherwise 1,000 tenants with 1,000 jobs each would be counted whole. A tenant is counted lane by
-- lane, and its bound is that of a lane: if a lane has more, then the tenant has.

-- fragment: set_aside
-- The rows of the index windlass_jobs_aside.
status IN ('failed', 'waiting', 'dead')

-- fragment: names_in_use
-- Where jobs are, by loose index scans as in `lanes`: lanes, jobs that are set aside, parked jobs; and the running jobs,
-- whose number the workers bound.   :now
served (queue) AS (
    SELECT (SELECT min(queue) FROM windlass_jobs WHERE {in_claim_index})
    UNION ALL
    SELECT (SELECT min(queue) FROM windlass_jobs WHERE {in_claim_index} AND queue > served.queue)
      FROM served
     WHERE served.queue IS NOT NULL
), ranked (queue, phase_rank) AS (
    SELECT queue, (SELECT min(phase_rank) FROM windlass_jobs WHERE {in_claim_index} AND queue = served.queue)
      FROM served
     WHERE served.queue IS NOT NULL
    UNION ALL
    SELECT ranked.queue, (SELECT min(phase_rank) FROM windlass_jobs
                           WHERE {in_claim_index} AND queue = ranked.queue AND phase_rank > ranked.phase_rank)
      FROM ranked
     WHERE ranked.phase_rank IS NOT NULL
), level (queue, phase_rank, priority) AS (
    SELECT queue, phase_rank, (SELECT max(priority) FROM windlass_jobs
                                WHERE {in_claim_index} AND queue = ranked.queue AND phase_rank = ranked.phase_rank)
      FROM ranked
     WHERE ranked.phase_rank IS NOT NULL
    UNION ALL
    SELECT level.queue, level.phase_rank,
           (SELECT max(priority) FROM windlass_jobs
             WHERE {in_claim_index} AND queue = level.queue AND phase_rank = level.phase_rank
               AND priority < level.priority)
      FROM level
     WHERE level.priority IS NOT NULL
), shared (queue, phase_rank, priority, tenant) AS (
    SELECT queue, phase_rank, priority,
           (SELECT min(tenant) FROM windlass_jobs
             WHERE {in_claim_index} AND queue = level.queue AND phase_rank = level.phase_rank
               AND priority = level.priority)
      FROM level
     WHERE level.priority IS NOT NULL
    UNION ALL
    SELECT shared.queue, shared.phase_rank, shared.priority,
           (SELECT min(tenant) FROM windlass_jobs
             WHERE {in_claim_index} AND queue = shared.queue AND phase_rank = shared.phase_rank
               AND priority = shared.priority AND tenant > shared.tenant)
      FROM shared
     WHERE shared.tenant IS NOT NULL
), lane AS MATERIALIZED (
    SELECT * FROM shared WHERE tenant IS NOT NULL
), aside_queue (status, queue) AS (
    SELECT state.value, (SELECT min(queue) FROM windlass_jobs WHERE {set_aside} AND status = state.value)
      FROM json_each('["failed", "waiting", "dead"]') AS state
    UNION ALL
    SELECT aside_queue.status, (SELECT min(queue) FROM windlass_jobs
                                 WHERE {set_aside} AND status = aside_queue.status AND queue > aside_queue.queue)
      FROM aside_queue
     WHERE aside_queue.queue IS NOT NULL
), aside_tenant (status, queue, tenant) AS (
    SELECT status, queue, (SELECT min(tenant) FROM windlass_jobs
                            WHERE {set_aside} AND status = aside_queue.status AND queue = aside_queue.queue)
      FROM aside_queue
     WHERE aside_queue.queue IS NOT NULL
    UNION ALL
    SELECT aside_tenant.status, aside_tenant.queue,
           (SELECT min(tenant) FROM windlass_jobs
             WHERE {set_aside} AND status = aside_tenant.status AND queue = aside_tenant.queue
               AND tenant > aside_tenant.tenant)
      FROM aside_tenant
     WHERE aside_tenant.tenant IS NOT NULL
), aside AS MATERIALIZED (
    SELECT * FROM aside_tenant WHERE tenant IS NOT NULL
), parked_queue (queue) AS (
    SELECT (SELECT min(queue) FROM windlass_jobs WHERE coalesce(parked_on, '') <> '')
    UNION ALL
    SELECT (SELECT min(queue) FROM windlass_jobs WHERE coalesce(parked_on, '') <> '' AND queue > parked_queue.queue)
      FROM parked_queue
     WHERE parked_queue.queue IS NOT NULL
), parked_tenant (queue, tenant) AS (
    SELECT queue, (SELECT min(tenant) FROM windlass_jobs WHERE coalesce(parked_on, '') <> '' AND queue = parked_queue.queue)
      FROM parked_queue
     WHERE parked_queue.queue IS NOT NULL
    UNION ALL
    SELECT parked_tenant.queue, (SELECT min(tenant) FROM windlass_jobs
                                  WHERE coalesce(parked_on, '') <> '' AND queue = parked_tenant.queue
                                    AND tenant > parked_tenant.tenant)
      FROM parked_tenant
     WHERE parked_tenant.tenant IS NOT NULL
), parked AS MATERIALIZED (
    SELECT * FROM parked_tenant WHERE tenant IS NOT NULL
), running AS MATERIALIZED (
    SELECT queue, tenant, count(*) AS jobs
      FROM (SELECT queue, tenant FROM windlass_jobs WHERE status = 'running' LIMIT 100000)
     GROUP BY queue, tenant
), first (queue, tenant, run_at) AS MATERIALIZED (
    -- The oldest claimable job of each lane, and the oldest parked job of each queue and tenant.
    SELECT lane.queue, lane.tenant, (
            SELECT min(run_at) FROM windlass_jobs
             WHERE {in_claim_index} AND queue = lane.queue AND phase_rank = lane.phase_rank
               AND priority = lane.priority AND tenant = lane.tenant AND (limits IS NOT NULL) = limited.value)
      FROM lane, json_each('[0, 1]') AS limited
    UNION ALL
    SELECT parked.queue, parked.tenant, (
            SELECT min(run_at) FROM windlass_jobs
             WHERE coalesce(parked_on, '') <> '' AND queue = parked.queue AND tenant = parked.tenant)
      FROM parked
)

-- fragment: share
-- How many jobs of each name are counted.
SELECT min(10000, max(10, 10000 / max(1, count(*))))

-- name: count_by_state
-- Count the jobs in each state, 10,001 at most.
--
-- No index tells queued jobs from failed ones, or succeeded ones from cancelled ones. So at most 30,000 rows are read
-- for each: behind 20,000 rows of the other state the number is too small.
SELECT 'queued', min(10001, (
        SELECT count(*) FROM (
            SELECT 1 FROM (SELECT status FROM windlass_jobs WHERE {in_claim_index} LIMIT 30000)
             WHERE status = 'queued' LIMIT 10001)) + (
        SELECT count(*) FROM (
            SELECT 1 FROM (SELECT status FROM windlass_jobs WHERE coalesce(parked_on, '') <> '' LIMIT 30000)
             WHERE status = 'queued' LIMIT 10001)))
UNION ALL
SELECT 'running', count(*) FROM (SELECT 1 FROM windlass_jobs WHERE status = 'running' LIMIT 10001)
UNION ALL
SELECT state.value, (
        SELECT count(*) FROM (
            SELECT 1 FROM windlass_jobs WHERE {set_aside} AND status = state.value LIMIT 10001))
  FROM json_each('["failed", "waiting", "dead"]') AS state
UNION ALL
SELECT 'cancelled', count(*) FROM (SELECT 1 FROM windlass_history WHERE status = 'cancelled' LIMIT 10001)
UNION ALL
SELECT 'succeeded', count(*) FROM (
    SELECT 1 FROM (SELECT status FROM windlass_history LIMIT 30000) WHERE status = 'succeeded' LIMIT 10001)

-- name: queues
-- List every queue with its jobs by state, and for how many seconds its oldest due job has waited.
--   :now
--
-- Of the claimable jobs of a queue twice the bound is read. So the number of queued jobs is right unless more jobs
-- failed than are counted; then it may be too small.
WITH RECURSIVE {names_in_use}, name AS MATERIALIZED (
    SELECT queue FROM lane UNION SELECT queue FROM aside UNION SELECT queue FROM parked UNION SELECT queue FROM running
), most (counted) AS MATERIALIZED (
    {share} FROM name
)
SELECT name.queue,
       min(counted + 1, (
            SELECT count(*) FROM (
                SELECT 1 FROM (SELECT status FROM windlass_jobs
                                WHERE {in_claim_index} AND queue = name.queue
                                LIMIT (SELECT 2 * counted + 2 FROM most))
                 WHERE status = 'queued' LIMIT (SELECT counted + 1 FROM most))) + (
            SELECT count(*) FROM (
                SELECT 1 FROM (SELECT status FROM windlass_jobs
                                WHERE coalesce(parked_on, '') <> '' AND queue = name.queue
                                LIMIT (SELECT 2 * counted + 2 FROM most))
                 WHERE status = 'queued' LIMIT (SELECT counted + 1 FROM most)))) AS queued,
       min(counted + 1, coalesce((SELECT sum(jobs) FROM running WHERE running.queue = name.queue), 0)) AS running,
       (SELECT count(*) FROM (SELECT 1 FROM windlass_jobs WHERE {set_aside} AND status = 'failed' AND queue = name.queue
                               LIMIT (SELECT counted + 1 FROM most))) AS failed,
       (SELECT count(*) FROM (SELECT 1 FROM windlass_jobs WHERE {set_aside} AND status = 'waiting' AND queue = name.queue
                               LIMIT (SELECT counted + 1 FROM most))) AS waiting,
       (SELECT count(*) FROM (SELECT 1 FROM windlass_jobs WHERE {set_aside} AND status = 'dead' AND queue = name.queue
                               LIMIT (SELECT counted + 1 FROM most))) AS dead,
       (SELECT (:now - min(first.run_at)) / 1000000.0
          FROM first WHERE first.queue = name.queue AND first.run_at <= :now) AS lag,
       counted
  FROM name, most
 ORDER BY name.queue

-- fragment: in_phases
-- The rows of the index windlass_jobs_in_phases: jobs of pipelines that wait for a claim, also parked ones.
coalesce(pipeline, '') <> '' AND {claimable_status}

-- name: phases
-- Count the due and the running jobs of each phase of a pipeline, and of each queue's jobs without a pipeline.
--   :now
--
-- Due and running jobs of one phase are two rows. No index tells jobs without a pipeline from those in a first phase: of
-- a lane twice as many jobs are read as are counted. Behind more jobs of pipelines, the number is too small.
WITH RECURSIVE {names_in_use}, piped (pipeline) AS (
    SELECT (SELECT min(pipeline) FROM windlass_jobs WHERE {in_phases})
    UNION ALL
    SELECT (SELECT min(pipeline) FROM windlass_jobs WHERE {in_phases} AND pipeline > piped.pipeline)
      FROM piped
     WHERE piped.pipeline IS NOT NULL
), piped_rank (pipeline, phase_rank) AS (
    SELECT pipeline, (SELECT min(phase_rank) FROM windlass_jobs WHERE {in_phases} AND pipeline = piped.pipeline)
      FROM piped
     WHERE piped.pipeline IS NOT NULL
    UNION ALL
    SELECT piped_rank.pipeline, (SELECT min(phase_rank) FROM windlass_jobs
                                  WHERE {in_phases} AND pipeline = piped_rank.pipeline
                                    AND phase_rank > piped_rank.phase_rank)
      FROM piped_rank
     WHERE piped_rank.phase_rank IS NOT NULL
), piped_phase (pipeline, phase_rank, phase) AS (
    SELECT pipeline, phase_rank, (SELECT min(phase) FROM windlass_jobs
                                   WHERE {in_phases} AND pipeline = piped_rank.pipeline
                                     AND phase_rank = piped_rank.phase_rank)
      FROM piped_rank
     WHERE piped_rank.phase_rank IS NOT NULL
    UNION ALL
    SELECT piped_phase.pipeline, piped_phase.phase_rank,
           (SELECT min(phase) FROM windlass_jobs
             WHERE {in_phases} AND pipeline = piped_phase.pipeline AND phase_rank = piped_phase.phase_rank
               AND phase > piped_phase.phase)
      FROM piped_phase
     WHERE piped_phase.phase IS NOT NULL
), step AS MATERIALIZED (
    SELECT * FROM piped_phase WHERE phase IS NOT NULL
), held AS MATERIALIZED (
    SELECT pipeline, iif(pipeline IS NULL, queue, phase) AS phase, phase_rank, count(*) AS jobs
      FROM (SELECT pipeline, queue, phase, phase_rank FROM windlass_jobs WHERE status = 'running' LIMIT 100000)
     GROUP BY 1, 2, 3
), most (counted) AS MATERIALIZED (
    {share} FROM (SELECT 1 FROM lane UNION ALL SELECT 1 FROM parked UNION ALL SELECT 1 FROM step)
)
SELECT step.pipeline, step.phase, step.phase_rank, (
        SELECT count(*) FROM (
            SELECT 1 FROM windlass_jobs
             WHERE {in_phases} AND pipeline = step.pipeline AND phase_rank = step.phase_rank AND phase = step.phase
               AND run_at <= :now
             LIMIT (SELECT counted + 1 FROM most))), 0, counted
  FROM step, most
UNION ALL
SELECT NULL, lane.queue, 0, (
        SELECT count(*) FROM (
            SELECT 1 FROM (
                SELECT pipeline FROM windlass_jobs
                 WHERE {in_claim_index} AND queue = lane.queue AND phase_rank = 0 AND priority = lane.priority
                   AND tenant = lane.tenant AND (limits IS NOT NULL) = limited.value AND run_at <= :now
                 LIMIT (SELECT 2 * counted FROM most))
             WHERE pipeline IS NULL
             LIMIT (SELECT counted + 1 FROM most))), 0, counted
  FROM lane, most, json_each('[0, 1]') AS limited
 WHERE lane.phase_rank = 0
UNION ALL
SELECT NULL, parked.queue, 0, (
        SELECT count(*) FILTER (WHERE pipeline IS NULL) FROM (
            SELECT pipeline FROM windlass_jobs
             WHERE coalesce(parked_on, '') <> '' AND queue = parked.queue AND tenant = parked.tenant AND run_at <= :now
             LIMIT (SELECT counted + 1 FROM most))), 0, counted
  FROM parked, most
UNION ALL
SELECT held.pipeline, held.phase, held.phase_rank, 0, min(counted + 1, held.jobs), counted
  FROM held, most

-- name: count_due
-- Count the due jobs of each queue, parked ones included, 10,001 at most; a number above `counted` means: more.
--   :now
--
-- A lane is an index range that ends at the present: jobs of later times are not read, however many there are. Lanes
-- share the bound. If a lane has more, the number is what was counted, and `counted` is one less.
WITH RECURSIVE {names_in_use}, most (counted) AS MATERIALIZED (
    {share} FROM (SELECT 1 FROM lane UNION ALL SELECT 1 FROM parked)
), counted AS MATERIALIZED (
    SELECT lane.queue, (
            SELECT count(*) FROM (
                SELECT 1 FROM windlass_jobs
                 WHERE {in_claim_index} AND queue = lane.queue AND phase_rank = lane.phase_rank
                   AND priority = lane.priority AND tenant = lane.tenant AND (limits IS NOT NULL) = limited.value
                   AND run_at <= :now
                 LIMIT (SELECT counted + 1 FROM most))) AS jobs
      FROM lane, json_each('[0, 1]') AS limited
    UNION ALL
    SELECT parked.queue, (
            SELECT count(*) FROM (
                SELECT 1 FROM windlass_jobs
                 WHERE coalesce(parked_on, '') <> '' AND queue = parked.queue AND tenant = parked.tenant
                   AND run_at <= :now
                 LIMIT (SELECT counted + 1 FROM most)))
      FROM parked
)
SELECT queue, min(10001, sum(jobs)), iif(max(jobs > most.counted), min(10000, sum(jobs) - 1), 10000)
  FROM counted, most
 GROUP BY queue
HAVING sum(jobs) > 0

-- name: tenants
-- Tenants that have a weight, or jobs, or costs in the last 24 hours.
--   :now
WITH RECURSIVE {names_in_use}, cost AS MATERIALIZED (
    SELECT tenant, sum(cents) AS cents FROM windlass_ledger WHERE at > :now - 24 * 3600 * 1000000 GROUP BY tenant
), name AS MATERIALIZED (
    SELECT name FROM windlass_tenants
     UNION SELECT tenant FROM lane UNION SELECT tenant FROM aside UNION SELECT tenant FROM parked
     UNION SELECT tenant FROM running UNION SELECT tenant FROM cost
), most (counted) AS MATERIALIZED (
    {share} FROM (SELECT 1 FROM lane UNION ALL SELECT 1 FROM parked)
), claimable AS MATERIALIZED (
    SELECT lane.tenant, sum((
            SELECT count(*) FROM (
                SELECT 1 FROM windlass_jobs
                 WHERE {in_claim_index} AND queue = lane.queue AND phase_rank = lane.phase_rank
                   AND priority = lane.priority AND tenant = lane.tenant
                 LIMIT (SELECT counted + 1 FROM most)))) AS jobs, sum((
            SELECT count(*) FROM (
                SELECT 1 FROM windlass_jobs, json_each('[0, 1]') AS limited
                 WHERE {in_claim_index} AND queue = lane.queue AND phase_rank = lane.phase_rank
                   AND priority = lane.priority AND tenant = lane.tenant AND (limits IS NOT NULL) = limited.value
                   AND run_at <= :now
                 LIMIT (SELECT counted + 1 FROM most)))) AS due
      FROM lane
     GROUP BY lane.tenant
), waiting_at_limits AS MATERIALIZED (
    SELECT parked.tenant, sum((
            SELECT count(*) FROM (
                SELECT 1 FROM windlass_jobs
                 WHERE coalesce(parked_on, '') <> '' AND queue = parked.queue AND tenant = parked.tenant
                 LIMIT (SELECT counted + 1 FROM most)))) AS jobs, sum((
            SELECT count(*) FROM (
                SELECT 1 FROM windlass_jobs
                 WHERE coalesce(parked_on, '') <> '' AND queue = parked.queue AND tenant = parked.tenant
                   AND run_at <= :now
                 LIMIT (SELECT counted + 1 FROM most)))) AS due
      FROM parked
     GROUP BY parked.tenant
), held AS MATERIALIZED (
    SELECT tenant, sum(jobs) AS jobs FROM running GROUP BY tenant
), oldest AS MATERIALIZED (
    SELECT tenant, min(run_at) AS run_at FROM first WHERE run_at <= :now GROUP BY tenant
)
SELECT name.name, coalesce(tenants.weight, 1.0),
       min(counted + 1, coalesce(claimable.jobs, 0) + coalesce(waiting_at_limits.jobs, 0)),
       min(counted + 1, coalesce(held.jobs, 0)),
       min(counted + 1, coalesce(waiting_at_limits.jobs, 0)),
       (:now - oldest.run_at) / 1000000.0,
       coalesce(cost.cents, 0),
       min(counted + 1, coalesce(claimable.due, 0) + coalesce(waiting_at_limits.due, 0)), counted
  FROM name
 CROSS JOIN most
  LEFT JOIN windlass_tenants AS tenants ON tenants.name = name.name
  LEFT JOIN claimable ON claimable.tenant = name.name
  LEFT JOIN waiting_at_limits ON waiting_at_limits.tenant = name.name
  LEFT JOIN held ON held.tenant = name.name
  LEFT JOIN oldest ON oldest.tenant = name.name
  LEFT JOIN cost ON cost.tenant = name.name
 ORDER BY name.name

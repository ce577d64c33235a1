-- Counts: jobs by state, queue and tenant.
--
-- No statement here reads a row per job. Names are found by loose index scans. A number is counted up to a bound and one
-- more: then it means "more". A statement that counted a million jobs would take a second and displace other pages.
--
-- The bound is 10,000 (COUNTED in model/rows.py). The names of a list share 10,000 among them, and counts
-- ten of each at least: otherwise 1,000 tenants with 1,000 jobs each would be counted whole. A tenant is counted lane by
-- lane, and its bound is that of a lane: if a lane has more, then the tenant has.

-- fragment: set_aside
-- The rows of the index jobs_aside, by its own condition.
coalesce(jobs.status, '') IN ('failed', 'waiting', 'dead')

-- fragment: names_in_use
-- Where jobs are, by loose index scans: lanes and parked jobs; and the running jobs, whose number the workers bound.
{all_lanes}, parked AS (
    (SELECT queue, tenant FROM windlass.jobs WHERE coalesce(parked_on, '') <> '' ORDER BY queue, tenant LIMIT 1)
    UNION ALL
    SELECT following.queue, following.tenant
      FROM parked
     CROSS JOIN LATERAL (
        SELECT queue, tenant
          FROM windlass.jobs
         WHERE coalesce(parked_on, '') <> '' AND (queue, tenant) > (parked.queue, parked.tenant)
         ORDER BY queue, tenant
         LIMIT 1) AS following
), running AS MATERIALIZED (
    SELECT queue, tenant, count(*) AS jobs
      FROM (SELECT queue, tenant FROM windlass.jobs WHERE status = 'running' LIMIT 100000) AS held
     GROUP BY queue, tenant
), first AS MATERIALIZED (
    -- The oldest claimable job of each lane, and the oldest parked job of each queue and tenant. A time that is infinite
    -- was written by hand and has no age.
    SELECT lane.queue, lane.tenant, (
            SELECT jobs.run_at FROM windlass.jobs WHERE {in_lane} AND jobs.run_at > '-infinity'
             ORDER BY jobs.run_at LIMIT 1) AS run_at
      FROM lane
    UNION ALL
    SELECT parked.queue, parked.tenant, (
            SELECT jobs.run_at FROM windlass.jobs
             WHERE coalesce(jobs.parked_on, '') <> '' AND jobs.queue = parked.queue AND jobs.tenant = parked.tenant
               AND jobs.run_at > '-infinity'
             ORDER BY jobs.run_at LIMIT 1)
      FROM parked
)

-- fragment: aside_by_tenant
-- Where jobs are set aside, by a loose index scan.
aside AS (
    (SELECT status, queue, tenant FROM windlass.jobs WHERE {set_aside} ORDER BY status, queue, tenant LIMIT 1)
    UNION ALL
    SELECT following.status, following.queue, following.tenant
      FROM aside
     CROSS JOIN LATERAL (
        SELECT status, queue, tenant
          FROM windlass.jobs
         WHERE {set_aside} AND (status, queue, tenant) > (aside.status, aside.queue, aside.tenant)
         ORDER BY status, queue, tenant
         LIMIT 1) AS following
)

-- fragment: aside_by_queue
-- As above, without the tenants: ten queues with dead jobs of 1,000 tenants are thirty steps at most, and not 10,000.
aside AS (
    (SELECT status, queue FROM windlass.jobs WHERE {set_aside} ORDER BY status, queue LIMIT 1)
    UNION ALL
    SELECT following.status, following.queue
      FROM aside
     CROSS JOIN LATERAL (
        SELECT status, queue
          FROM windlass.jobs
         WHERE {set_aside} AND (status, queue) > (aside.status, aside.queue)
         ORDER BY status, queue
         LIMIT 1) AS following
)

-- fragment: share
-- How many jobs of each name are counted.
SELECT least(10000, greatest(10, 10000 / greatest(1, count(*))))::int

-- name: count_by_state
-- Count the jobs in each state, 10,001 at most.
--
-- Jobs that wait for a claim are queued or failed, and no index tells which. So failed jobs are counted in an index of
-- their own, up to 50,000, and taken off: the rows themselves are not read, and 60,000 index entries take a tenth of the
-- time of 10,000 rows. If more jobs failed, the status of at most 30,000 rows is read, and behind 20,000 failed jobs the
-- number is too small; so is that of succeeded jobs behind cancelled ones.
WITH aside AS MATERIALIZED (
    SELECT name.status, (
            SELECT count(*) FROM (
                SELECT FROM windlass.jobs WHERE {set_aside} AND jobs.status = name.status LIMIT name.most) AS counted) AS jobs
      FROM (VALUES ('failed', 50001), ('waiting', 10001), ('dead', 10001)) AS name (status, most)
)
SELECT 'queued' AS status, CASE WHEN failed.jobs <= 50000 THEN least(10001, (
        SELECT count(*) FROM (
            SELECT FROM windlass.jobs WHERE {in_claim_index} LIMIT 10001 + failed.jobs) AS claimable) + (
        SELECT count(*) FROM (
            SELECT FROM windlass.jobs
             WHERE coalesce(parked_on, '') <> '' LIMIT 10001 + failed.jobs) AS parked) - failed.jobs)
       ELSE least(10001, (
        SELECT count(*) FROM (
            SELECT FROM (SELECT status FROM windlass.jobs WHERE {in_claim_index} LIMIT 30000) AS claimable
             WHERE status = 'queued' LIMIT 10001) AS counted) + (
        SELECT count(*) FROM (
            SELECT FROM (SELECT status FROM windlass.jobs WHERE coalesce(parked_on, '') <> '' LIMIT 30000) AS parked
             WHERE status = 'queued' LIMIT 10001) AS counted)) END AS jobs
  FROM aside AS failed
 WHERE failed.status = 'failed'
UNION ALL
SELECT 'running', count(*) FROM (SELECT FROM windlass.jobs WHERE status = 'running' LIMIT 10001) AS counted
UNION ALL
SELECT status, least(10001, jobs) FROM aside
UNION ALL
SELECT 'cancelled', count(*) FROM (SELECT FROM windlass.history WHERE status = 'cancelled' LIMIT 10001) AS counted
UNION ALL
SELECT 'succeeded', count(*) FROM (
    SELECT FROM (SELECT status FROM windlass.history LIMIT 30000) AS ended
     WHERE status = 'succeeded' LIMIT 10001) AS counted

-- name: queues
-- List every queue with its jobs by state, and how long its oldest due job has waited.
--
-- Queued jobs are those that wait for a claim without the failed ones, as in `count_by_state`: two counts in indexes, and
-- no row is read. If more jobs of a queue failed than are counted, the status of the rows is read, of twice as many: then
-- the number may be too small.
WITH RECURSIVE {names_in_use}, {aside_by_queue}, name AS MATERIALIZED (
    SELECT queue FROM lane UNION SELECT queue FROM aside UNION SELECT queue FROM parked UNION SELECT queue FROM running
), most AS MATERIALIZED (
    {share} AS counted FROM name
), set_aside AS MATERIALIZED (
    SELECT name.queue, name.status, most.counted, (
            SELECT count(*) FROM (
                SELECT FROM windlass.jobs
                 WHERE {set_aside} AND jobs.status = name.status AND jobs.queue = name.queue
                 LIMIT most.counted + 1) AS jobs) AS jobs
      FROM aside AS name, most
), tally AS MATERIALIZED (
    SELECT name.queue, most.counted,
           coalesce(max(set_aside.jobs) FILTER (WHERE set_aside.status = 'failed'), 0) AS failed,
           coalesce(max(set_aside.jobs) FILTER (WHERE set_aside.status = 'waiting'), 0) AS waiting,
           coalesce(max(set_aside.jobs) FILTER (WHERE set_aside.status = 'dead'), 0) AS dead
      FROM name
     CROSS JOIN most
      LEFT JOIN set_aside USING (queue)
     GROUP BY name.queue, most.counted
)
SELECT tally.queue,
       CASE WHEN failed <= counted THEN least(counted + 1, (
            SELECT count(*) FROM (
                SELECT FROM windlass.jobs WHERE {in_claim_index} AND jobs.queue = tally.queue
                 LIMIT tally.counted + 1 + tally.failed) AS claimable) + (
            SELECT count(*) FROM (
                SELECT FROM windlass.jobs WHERE coalesce(jobs.parked_on, '') <> '' AND jobs.queue = tally.queue
                 LIMIT tally.counted + 1 + tally.failed) AS parked) - failed)
       ELSE least(counted + 1, (
            SELECT count(*) FILTER (WHERE status = 'queued') FROM (
                SELECT status FROM windlass.jobs
                 WHERE {in_claim_index} AND jobs.queue = tally.queue
                 LIMIT tally.counted + 1 + tally.failed) AS claimable) + (
            SELECT count(*) FILTER (WHERE status = 'queued') FROM (
                SELECT status FROM windlass.jobs
                 WHERE coalesce(jobs.parked_on, '') <> '' AND jobs.queue = tally.queue
                 LIMIT tally.counted + 1 + tally.failed) AS parked)) END AS queued,
       least(counted + 1, coalesce((
            SELECT sum(running.jobs) FROM running WHERE running.queue = tally.queue), 0))::bigint AS running,
       failed, waiting, dead,
       (SELECT extract(epoch FROM windlass.now() - min(first.run_at))::float8
          FROM first WHERE first.queue = tally.queue AND first.run_at <= windlass.now()) AS lag,
       counted
  FROM tally
 ORDER BY tally.queue

-- fragment: in_phases
-- The rows of the index jobs_in_phases, by its own condition: jobs of pipelines that wait for a claim, also parked ones.
coalesce(jobs.pipeline, '') <> '' AND {claimable_status}

-- name: phases
-- Count the due and the running jobs of each phase of a pipeline, and of each queue's jobs without a pipeline.
--
-- Due and running jobs of one phase are two rows. No index tells jobs without a pipeline from those in a first phase: of
-- a lane twice as many jobs are read as are counted. Behind more jobs of pipelines, the number is too small.
WITH RECURSIVE {names_in_use}, step AS (
    (SELECT pipeline, phase_rank, phase FROM windlass.jobs WHERE {in_phases} ORDER BY pipeline, phase_rank, phase LIMIT 1)
    UNION ALL
    SELECT following.pipeline, following.phase_rank, following.phase
      FROM step
     CROSS JOIN LATERAL (
        SELECT pipeline, phase_rank, phase
          FROM windlass.jobs
         WHERE {in_phases} AND (pipeline, phase_rank, phase) > (step.pipeline, step.phase_rank, step.phase)
         ORDER BY pipeline, phase_rank, phase
         LIMIT 1) AS following
), held AS MATERIALIZED (
    SELECT pipeline, CASE WHEN pipeline IS NULL THEN queue ELSE phase END AS phase, phase_rank, count(*) AS jobs
      FROM (SELECT pipeline, queue, phase, phase_rank FROM windlass.jobs WHERE status = 'running' LIMIT 100000) AS held
     GROUP BY 1, 2, 3
), most AS MATERIALIZED (
    {share} AS counted
      FROM (SELECT FROM lane UNION ALL SELECT FROM parked UNION ALL SELECT FROM step) AS place
)
SELECT step.pipeline, step.phase, step.phase_rank, (
        SELECT count(*) FROM (
            SELECT FROM windlass.jobs
             WHERE {in_phases} AND jobs.pipeline = step.pipeline AND jobs.phase_rank = step.phase_rank
               AND jobs.phase = step.phase AND jobs.run_at <= windlass.now()
             LIMIT most.counted + 1) AS due)::int, 0, counted
  FROM step, most
UNION ALL
SELECT NULL, lane.queue, 0, (
        SELECT count(*) FROM (
            SELECT FROM (
                SELECT jobs.pipeline FROM windlass.jobs
                 WHERE {in_lane} AND jobs.run_at <= windlass.now()
                 LIMIT 2 * most.counted) AS read
             WHERE read.pipeline IS NULL
             LIMIT most.counted + 1) AS due)::int, 0, counted
  FROM lane, most
 WHERE lane.phase_rank = 0
UNION ALL
SELECT NULL, parked.queue, 0, (
        SELECT count(*) FILTER (WHERE pipeline IS NULL) FROM (
            SELECT jobs.pipeline FROM windlass.jobs
             WHERE coalesce(jobs.parked_on, '') <> '' AND jobs.queue = parked.queue AND jobs.tenant = parked.tenant
               AND jobs.run_at <= windlass.now()
             LIMIT most.counted + 1) AS due)::int, 0, counted
  FROM parked, most
UNION ALL
SELECT held.pipeline, held.phase, held.phase_rank, 0, least(counted + 1, held.jobs)::int, counted
  FROM held, most

-- name: count_due
-- Count the due jobs of each queue, parked ones included, 10,001 at most; a number above `counted` means: more.
--
-- A lane is an index range that ends at the present: jobs of later times are not read, however many there are. Lanes
-- share the bound. If a lane has more, the number is what was counted, and `counted` is one less.
WITH RECURSIVE {names_in_use}, most AS MATERIALIZED (
    {share} AS counted FROM (SELECT FROM lane UNION ALL SELECT FROM parked) AS place
), counted AS MATERIALIZED (
    SELECT lane.queue, (
            SELECT count(*) FROM (
                SELECT FROM windlass.jobs WHERE {in_lane} AND jobs.run_at <= windlass.now() LIMIT most.counted + 1
            ) AS jobs) AS jobs
      FROM lane, most
    UNION ALL
    SELECT parked.queue, (
            SELECT count(*) FROM (
                SELECT FROM windlass.jobs
                 WHERE coalesce(jobs.parked_on, '') <> '' AND jobs.queue = parked.queue AND jobs.tenant = parked.tenant
                   AND jobs.run_at <= windlass.now()
                 LIMIT most.counted + 1) AS jobs)
      FROM parked, most
)
SELECT queue, least(10001, sum(jobs))::int AS due,
       CASE WHEN bool_or(jobs > most.counted) THEN least(10000, sum(jobs) - 1)::int ELSE 10000 END AS counted
  FROM counted, most
 GROUP BY queue
HAVING sum(jobs) > 0

-- fragment: count_by_time
-- How many jobs there are, how many of them are due, and since when the oldest is. Jobs come in the order of their times:
-- if the bound cuts some off, these are the latest. A time that is infinite was written by hand and has no age.
SELECT count(*) AS jobs, count(*) FILTER (WHERE run_at <= windlass.now()) AS due,
                   min(run_at) FILTER (WHERE run_at <= windlass.now() AND run_at > '-infinity') AS oldest FROM

-- name: tenants
-- List the tenants that have a weight or jobs, or that cost something in the last 24 hours.
WITH RECURSIVE {names_in_use}, {aside_by_tenant}, cost AS (
    SELECT tenant, sum(cents)::bigint AS cents
      FROM windlass.ledger
     WHERE at > windlass.now() - interval '24 hours'
     GROUP BY tenant
), name AS MATERIALIZED (
    SELECT name FROM windlass.tenants
     UNION SELECT tenant FROM lane UNION SELECT tenant FROM aside UNION SELECT tenant FROM parked
     UNION SELECT tenant FROM running UNION SELECT tenant FROM cost
), most AS MATERIALIZED (
    {share} AS counted FROM (SELECT FROM lane UNION ALL SELECT FROM parked) AS place
), claimable AS MATERIALIZED (
    SELECT lane.tenant, sum(jobs) AS jobs, sum(due) AS due, min(oldest) AS oldest
      FROM lane, most,
           LATERAL ({count_by_time} (
                SELECT jobs.run_at FROM windlass.jobs WHERE {in_lane} ORDER BY jobs.run_at LIMIT most.counted + 1
           ) AS jobs) AS counted
     GROUP BY lane.tenant
), waiting_at_limits AS MATERIALIZED (
    SELECT parked.tenant, sum(jobs) AS jobs, sum(due) AS due, min(oldest) AS oldest
      FROM parked, most,
           LATERAL ({count_by_time} (
                SELECT jobs.run_at FROM windlass.jobs
                 WHERE coalesce(jobs.parked_on, '') <> '' AND jobs.queue = parked.queue AND jobs.tenant = parked.tenant
                 ORDER BY jobs.run_at LIMIT most.counted + 1
           ) AS jobs) AS counted
     GROUP BY parked.tenant
), held AS MATERIALIZED (
    SELECT tenant, sum(jobs) AS jobs FROM running GROUP BY tenant
)
SELECT name.name, coalesce(tenants.weight, 1.0),
       least(counted + 1, coalesce(claimable.jobs, 0) + coalesce(waiting_at_limits.jobs, 0))::int,
       least(counted + 1, coalesce(held.jobs, 0))::int,
       least(counted + 1, coalesce(waiting_at_limits.jobs, 0))::int,
       extract(epoch FROM windlass.now() - least(claimable.oldest, waiting_at_limits.oldest))::float8,
       coalesce(cost.cents, 0),
       least(counted + 1, coalesce(claimable.due, 0) + coalesce(waiting_at_limits.due, 0))::int, counted
  FROM name
 CROSS JOIN most
  LEFT JOIN windlass.tenants ON tenants.name = name.name
  LEFT JOIN claimable ON claimable.tenant = name.name
  LEFT JOIN waiting_at_limits ON waiting_at_limits.tenant = name.name
  LEFT JOIN held ON held.tenant = name.name
  LEFT JOIN cost ON cost.tenant = name.name
 ORDER BY name.name

-- Claim: where due jobs are, and how they are leased to a worker.
--
-- The parameters of `claim` and `claim_limited`:
--
--   $1  worker
--   $2  room: the most jobs to claim
--   $3  token of the new leases
--   $4  types that the worker knows
--   $5  places for the oldest jobs of any priority
--   $6  suspects: with, without or only
--   $7  seconds for which a job must have been untouched
--       The lanes to read, as arrays of equal length. Lanes that are equal in rank are served in this order:
--   $8  queue
--   $9  phase rank
--   $10 urgency (-priority)
--   $11 tenant
--   $12 limited: whether the lane's jobs have limits
--   $13 quota: the most jobs to take from the lane
--   $14 floor, run_at: the lane is read from (run_at, id) on
--   $15 floor, id
--   $16 skip: null for a lane's first offer; for its second offer, the number of jobs that the first offer covers
--   $17 heads: whether lanes are ordered by the age of their first jobs
--   $18 set back: after the clock was set back, the time (seconds since the epoch) up to which the claim also takes
--       jobs that were due before; null if the clock was not set back
--   $19 overdue: seconds for which a job must have been due; 0 = a job that is due now
--   $20 parks (`claim_limited` only): the most skipped jobs to park in this claim; 0 = park none, refused jobs stay
--       claimable
--
-- Why both are written like this:
--
--   MATERIALIZED and the join to the UPDATE: `UPDATE … WHERE id IN (SELECT … LIMIT 10)` may run its subquery once per
--   row, and has claimed 1,000 rows under another plan.
--   LATERAL runs lane by lane. It stops, with its locks, as soon as the outer LIMIT is reached.
--   SKIP LOCKED leaves out rows that another claim, a finish or an operator holds: a claim waits for no lock.

-- fragment: claimable_status
-- The states in which a job waits for a claim.
jobs.status IN ('queued', 'failed')

-- fragment: in_claim_index
-- The rows of the index jobs_claim: jobs that wait for a claim and are not parked.
{claimable_status} AND jobs.parked_on IS NULL

-- fragment: in_lane
-- The jobs of a lane that a claim could take: not ended, not running, not waiting, not parked.
jobs.queue = lane.queue AND jobs.phase_rank = lane.phase_rank
           AND (-jobs.priority) = lane.urgency AND jobs.tenant = lane.tenant
           AND (jobs.limits IS NOT NULL) = lane.limited
           AND {in_claim_index}

-- fragment: due
-- A job that has been due for $19 seconds; and, after the clock was set back, a job that was due by its own times. The
-- first line is where the scan of a lane ends, so that a claim of overdue jobs does not walk over a backlog of others.
jobs.run_at <= greatest(windlass.now() - make_interval(secs => $19::float8), to_timestamp($18::float8))
           AND {due_by_itself}

-- fragment: due_by_itself
-- A job that is due; and, after the clock was set back, a job that was due by its own times.
(jobs.run_at <= windlass.now() OR jobs.run_at <= greatest(jobs.created_at, jobs.updated_at))

-- fragment: readable
-- A row that a program can read and claim. Other rows were written before the table had its CHECKs, or past them.
jobs.fence < 9223372036854775806 AND jobs.attempt < 2147483646
           AND jobs.run_at >= '0001-01-01 00:00+00'
           AND jobs.created_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59+00'
           AND (jobs.finished_at IS NULL OR jobs.finished_at BETWEEN '0001-01-01 00:00+00' AND '9999-12-31 23:59:59+00')

-- fragment: claimable
-- What a claim may take from a lane: conditions on the job itself. What is closed at times belongs to the fragment
-- `closed` in admission.sql.
{in_lane}
           -- time
           AND {due}
           AND (jobs.run_at, jobs.id) >= (lane.floor_at, lane.floor_id)
           AND NOT jobs.cancel_requested
           -- types: a job of an unknown type is skipped, without a lease or an attempt
           AND jobs.type = ANY ($4::text[])
           -- gates of types; the gates of queues and tenants, and budgets, are checked per lane
           AND jobs.type NOT IN (SELECT name FROM closed WHERE kind = 'type')
           AND {readable}
           -- suspects: jobs that a worker held when it died
           AND CASE $6::text WHEN 'with' THEN true WHEN 'only' THEN jobs.crashes > 0 ELSE jobs.crashes = 0 END
           AND (jobs.updated_at <= windlass.now() - make_interval(secs => $7::float8)
                OR jobs.updated_at > windlass.now())

-- fragment: not_full
-- The job has no limits, or none of its keys is known to be full.
(NOT lane.limited OR (
                jobs.limits[1] NOT IN (SELECT key FROM full_keys)
                AND (cardinality(jobs.limits) = 1 OR NOT EXISTS (
                     SELECT FROM unnest(jobs.limits) AS need (key) WHERE need.key IN (SELECT key FROM full_keys)))))

-- fragment: lanes_of_claim
-- The lanes of the claim that no gate and no spent budget closes, in the order in which they are served.
open_lanes AS MATERIALIZED (
    SELECT lane.queue, lane.phase_rank, lane.urgency, lane.tenant, lane.limited, lane.quota, lane.floor_at,
           lane.floor_id, lane.place, lane.skip,
           -- Queues of one priority are served by time: the queue with the oldest first job comes first, so that no
           -- queue starves. A tenant's jobs with limits and its jobs without limits are ordered in the same way.
           CASE WHEN $17::boolean THEN (
               SELECT jobs.run_at
                 FROM windlass.jobs
                WHERE {in_lane}
                  AND (jobs.run_at, jobs.id) >= (lane.floor_at, lane.floor_id)
                  AND {due}
                ORDER BY jobs.run_at, jobs.id
                LIMIT 1) END AS head
      FROM unnest($8::text[], $9::int[], $10::int[], $11::text[], $12::boolean[], $13::int[], $14::timestamptz[],
                  $15::uuid[], $16::int[]) WITH ORDINALITY
           AS lane (queue, phase_rank, urgency, tenant, limited, quota, floor_at, floor_id, skip, place)
     -- A worker that was declared dead while it was frozen claims nothing: its jobs would only have to be rescued.
     WHERE EXISTS (SELECT FROM windlass.workers WHERE workers.id = $1::uuid AND NOT workers.dead)
     -- gates and budgets: everything, a queue, a tenant
       AND NOT EXISTS (SELECT FROM closed WHERE kind = 'all')
       AND lane.queue NOT IN (SELECT name FROM closed WHERE kind = 'queue')
       AND lane.tenant NOT IN (SELECT name FROM closed WHERE kind = 'tenant')
), lane AS MATERIALIZED (
    SELECT open_lanes.*
      FROM open_lanes
     ORDER BY phase_rank, urgency, min(head) OVER (PARTITION BY phase_rank, urgency, queue) NULLS LAST, queue,
              skip IS NOT NULL, min(place) OVER (PARTITION BY phase_rank, urgency, queue, tenant), head NULLS LAST
)

-- fragment: leased
-- What a claim writes into a job.
status = 'running', token = $3::uuid, fence = fence + 1, worker = $1::uuid, attempt = attempt + 1,
           claimed_at = windlass.now(), started_at = windlass.now(), updated_at = windlass.now()

-- fragment: all_lanes
-- Every lane, by a loose index scan: each step jumps to the first entry after the lane it knows, so that the cost is one
-- descent per lane and not one row per job.
lane AS (
    (SELECT queue, phase_rank, -priority AS urgency, tenant, limits IS NOT NULL AS limited
       FROM windlass.jobs
      WHERE {in_claim_index}
      ORDER BY queue, phase_rank, (-priority), tenant, (limits IS NOT NULL)
      LIMIT 1)
    UNION ALL
    SELECT following.queue, following.phase_rank, following.urgency, following.tenant, following.limited
      FROM lane
     CROSS JOIN LATERAL (
        SELECT queue, phase_rank, -priority AS urgency, tenant, limits IS NOT NULL AS limited
          FROM windlass.jobs
         WHERE {in_claim_index}
           AND (queue, phase_rank, (-priority), tenant, (limits IS NOT NULL))
               > (lane.queue, lane.phase_rank, lane.urgency, lane.tenant, lane.limited)
         ORDER BY queue, phase_rank, (-priority), tenant, (limits IS NOT NULL)
         LIMIT 1) AS following
)

-- name: lanes
-- List where claimable jobs are: one row per (queue, phase rank, priority, tenant, limited), in the order of a claim.
--
--   $1 types that the worker knows
--
-- `next_in` is the time until the lane's first job that is not due yet, for a worker that wants to sleep until then. It
-- counts known types only: otherwise the worker would wake for jobs that it cannot run.
-- `written` is set if that job was due when its row was written: then the clock was set back since. A time more than
-- ten years ahead is no clock's time and does not count.
WITH RECURSIVE {all_lanes}
SELECT lane.queue, lane.phase_rank, lane.urgency, lane.tenant, lane.limited,
       coalesce(tenants.weight, 1.0) AS weight,
       ahead.next_in, ahead.written, extract(epoch FROM windlass.now())::float8 AS clock,
       (SELECT extract(epoch FROM max(seen_at))::float8 FROM windlass.installation) AS seen
  FROM lane
  LEFT JOIN windlass.tenants ON tenants.name = lane.tenant
  LEFT JOIN LATERAL (
        SELECT extract(epoch FROM jobs.run_at - windlass.now())::float8 AS next_in,
               CASE WHEN jobs.run_at <= greatest(jobs.created_at, jobs.updated_at)
                         AND greatest(jobs.created_at, jobs.updated_at) < windlass.now() + interval '10 years'
                    THEN extract(epoch FROM greatest(jobs.created_at, jobs.updated_at))::float8 END AS written
          FROM windlass.jobs
         WHERE {in_lane}
           AND jobs.run_at > windlass.now() AND jobs.run_at < '9999-12-31' AND jobs.type = ANY ($1::text[])
         ORDER BY jobs.run_at
         LIMIT 1) AS ahead ON true
 ORDER BY lane.phase_rank, lane.urgency, lane.queue

-- name: claim
-- Lease up to $2 due jobs to worker $1, from lanes of jobs without limits. One round trip.
--
--   $1 … $19: at the top of this file
WITH closed AS MATERIALIZED (
    {closed}
), {lanes_of_claim}, oldest AS MATERIALIZED (
    -- Ageing: a few places go to the oldest due jobs of any priority. One descent per lane, and none at all when $5 is
    -- 0. The outer level takes the locks and checks the state again: a row may have gone in between.
    SELECT jobs.id, jobs.limits
      FROM windlass.jobs
     WHERE jobs.id = ANY (ARRAY (
            SELECT first.id
              FROM lane
             CROSS JOIN LATERAL (
                SELECT jobs.id, jobs.run_at
                  FROM windlass.jobs
                 WHERE {claimable}
                 ORDER BY jobs.run_at, jobs.id
                 LIMIT $5::int) AS first
             ORDER BY first.run_at, first.id
             LIMIT $5::int))
       -- coalesce, so that the claim's index does not fit: the planner would walk it instead of looking up a few ids.
       AND {claimable_status} AND coalesce(jobs.parked_on, '') = '' AND NOT jobs.cancel_requested
     LIMIT $5::int
       FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT due.id, due.limits, due.run_at, lane.place AS lane
      FROM lane
     CROSS JOIN LATERAL (
        SELECT jobs.id, jobs.limits, jobs.run_at
          FROM windlass.jobs
         WHERE {claimable}
           AND jobs.id <> ALL (ARRAY (SELECT id FROM oldest))
         -- `created_at` sorts the lane. The steady pace claims ten jobs a minute and can afford it.
         ORDER BY jobs.{order}, jobs.id
         -- fairness: a tenant's quota of this claim
         LIMIT lane.quota OFFSET coalesce(lane.skip, 0)
           FOR UPDATE SKIP LOCKED) AS due
     LIMIT $2::int - (SELECT count(*) FROM oldest)
)
UPDATE windlass.jobs
   SET {leased}
  -- ANY makes PostgreSQL look each id up; a join could walk over the whole index (ARCHITECTURE.md, look-ups).
  -- count(*) OVER () makes PostgreSQL finish selecting before it updates. Otherwise the rows that a lane's first offer
  -- claimed would be missing from the lane, and OFFSET of its second offer would skip jobs that were not claimed.
  FROM (SELECT id, aged, count(*) OVER () AS found
          FROM (SELECT id, true AS aged FROM oldest UNION ALL SELECT id, false FROM picked) AS found) AS chosen
 WHERE jobs.id = ANY (ARRAY[chosen.id]) AND chosen.found > 0
RETURNING {columns}, chosen.aged

-- name: claim_limited
-- Lease up to $2 due jobs to worker $1, from lanes of jobs with or without limits. A candidate is claimed if every
-- limit key it has is below its limit; otherwise it is parked on the first full key.
--
--   $1 … $20: at the top of this file
--
-- A counter row that another claim or a finish holds is skipped: its jobs stay where they are.
-- A key without a counter row is returned as unknown; the caller makes the row and claims again.
-- A candidate counts against each of its keys whether or not it is claimed, so that a claim may leave a slot unused but
-- never takes a slot too many.
-- A claim that parks a job holds the counter's lock: a slot that is released is either counted here, or its transaction
-- sees the parked job.
WITH closed AS MATERIALIZED (
    {closed}
), full_keys AS MATERIALIZED (
    SELECT key
      FROM windlass.limit_counters
     WHERE full_hint AND windlass.room(most, used, period, burst, next_at, held_until) = 0
), {lanes_of_claim}, oldest AS MATERIALIZED (
    -- Ageing: a few places go to the oldest due jobs of any priority. One descent per lane, and none at all when $5 is
    -- 0. The outer level takes the locks and checks the state again: a row may have gone in between.
    SELECT jobs.id, jobs.limits
      FROM windlass.jobs
     WHERE jobs.id = ANY (ARRAY (
            SELECT first.id
              FROM lane
             CROSS JOIN LATERAL (
                SELECT jobs.id, jobs.run_at
                  FROM windlass.jobs
                 WHERE {claimable}
                   AND {not_full}
                 ORDER BY jobs.run_at, jobs.id
                 LIMIT $5::int) AS first
             ORDER BY first.run_at, first.id
             LIMIT $5::int))
       -- coalesce, so that the claim's index does not fit: the planner would walk it instead of looking up a few ids.
       AND {claimable_status} AND coalesce(jobs.parked_on, '') = '' AND NOT jobs.cancel_requested
     LIMIT $5::int
       FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT due.id, due.limits, due.run_at, lane.place AS lane
      FROM lane
     CROSS JOIN LATERAL (
        SELECT jobs.id, jobs.limits, jobs.run_at
          FROM windlass.jobs
         WHERE {claimable}
           AND {not_full}
           AND jobs.id <> ALL (ARRAY (SELECT id FROM oldest))
         -- `created_at` sorts the lane. The steady pace claims ten jobs a minute and can afford it.
         ORDER BY jobs.{order}, jobs.id
         -- fairness: a tenant's quota of this claim
         LIMIT lane.quota OFFSET coalesce(lane.skip, 0)
           FOR UPDATE SKIP LOCKED) AS due
     LIMIT $2::int - (SELECT count(*) FROM oldest)
), chosen AS MATERIALIZED (
    SELECT id, limits, aged, row_number() OVER () AS place
      FROM (SELECT id, limits, true AS aged FROM oldest UNION ALL SELECT id, limits, false FROM picked) AS found
), {wanted_keys}, walked AS MATERIALIZED (
    -- How far each lane was read: to its last pick, or to its end if there was room for more. Two values, so that the
    -- scan of `skipped` ends there in the index and reads no later job.
    SELECT lane.*,
           CASE WHEN coalesce(last.n, 0) < lane.quota AND (SELECT count(*) FROM chosen) < $2::int THEN 'infinity'
                ELSE coalesce(last.run_at, '-infinity') END AS end_at,
           coalesce(last.id, '00000000-0000-0000-0000-000000000000'::uuid) AS end_id
      FROM lane
      LEFT JOIN LATERAL (
            SELECT picked.run_at, picked.id, count(*) OVER () AS n
              FROM picked
             WHERE picked.lane = lane.place
             ORDER BY picked.run_at DESC, picked.id DESC
             LIMIT 1) AS last ON true
     WHERE $20::int > 0 AND lane.limited AND EXISTS (SELECT FROM full_keys)
), skipped AS MATERIALIZED (
    -- Due jobs in that part of each lane that the claim passed over, because one of their keys is full.
    SELECT passed_over.id, passed_over.key
      FROM walked AS lane
     CROSS JOIN LATERAL (
        SELECT jobs.id, (SELECT need.key FROM unnest(jobs.limits) AS need (key)
                          WHERE need.key IN (SELECT key FROM full_keys) LIMIT 1) AS key
          FROM windlass.jobs
         WHERE {in_lane}
           AND jobs.run_at <= windlass.now()
           AND (jobs.run_at, jobs.id) < (lane.end_at, lane.end_id)
           AND EXISTS (SELECT FROM unnest(jobs.limits) AS need (key) WHERE need.key IN (SELECT key FROM full_keys))
           AND {readable}
         ORDER BY jobs.run_at, jobs.id
         LIMIT $20::int
           FOR UPDATE SKIP LOCKED) AS passed_over
     LIMIT $20::int
), {admitted}, to_park AS MATERIALIZED (
    SELECT id, key FROM (SELECT id, key FROM refused UNION ALL SELECT id, key FROM skipped) AS not_claimed
     WHERE $20::int > 0 AND key IN (SELECT key FROM full_now)
), {admission_written}
{claimed_with_keys}

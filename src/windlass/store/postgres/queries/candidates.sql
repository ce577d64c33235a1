-- Find up to $2 due jobs for worker $1 and lock them, nothing waits. claim.sql or claim_limited.sql goes on from here.
--
--   $1 worker   $2 room   $3 token   $4 types   $5 places for the oldest   $6 suspects: with, without or only
--   $7 rest in seconds   $8 … $15 the lanes, in the order in which equals are served: queue, phase rank, -priority,
--   tenant, whether its jobs have limits, quota, and the floor as run_at and id   $16 whether the ages
--   of their first jobs matter   $17 of a lane that is offered once more, to fill what others left: so many were offered before
--   $18 up to which time, in seconds since the epoch, jobs are looked for that had been due before the clock was set
--   back; null where it was not
--
-- MATERIALIZED and the join to the write: `UPDATE … WHERE id IN (SELECT … LIMIT 10)` may run its subquery once per
-- row and has claimed 1,000 rows under another plan. The LATERAL runs lane by lane and stops, with its locks, as
-- soon as the outer LIMIT is reached; SKIP LOCKED leaves rows that another claim, a finish or an operator holds.
WITH closed AS MATERIALIZED (
    SELECT kind, name FROM windlass.gates WHERE state <> 'open'
    UNION ALL
    SELECT kind, name FROM windlass.budgets WHERE cents = 0 OR (spent >= cents AND until > windlass.now())
){crowded}, open AS MATERIALIZED (
    SELECT lane.queue, lane.phase_rank, lane.urgency, lane.tenant, lane.limited, lane.quota, lane.floor_at, lane.floor_id,
           lane.place, lane.skip,
           -- Queues of one priority are served by time: whose first job is the oldest comes first, so that none starves;
           -- and so are a tenant's jobs with limits and those without.
           CASE WHEN $16::boolean THEN (
               SELECT jobs.run_at
                 FROM windlass.jobs
                WHERE jobs.queue = lane.queue AND jobs.phase_rank = lane.phase_rank
                  AND (-jobs.priority) = lane.urgency AND jobs.tenant = lane.tenant
                  AND (jobs.limits IS NOT NULL) = lane.limited
                  AND jobs.status IN ('queued', 'failed') AND jobs.parked_on IS NULL
                  AND (jobs.run_at, jobs.id) >= (lane.floor_at, lane.floor_id)
                  AND {due}
                ORDER BY jobs.run_at, jobs.id
                LIMIT 1) END AS head
      FROM unnest($8::text[], $9::int[], $10::int[], $11::text[], $12::boolean[], $13::int[], $14::timestamptz[],
                  $15::uuid[], $17::int[]) WITH ORDINALITY
           AS lane (queue, phase_rank, urgency, tenant, limited, quota, floor_at, floor_id, skip, place)
     -- A worker that was declared dead while it was frozen claims nothing: its jobs would only have to be rescued.
     WHERE EXISTS (SELECT FROM windlass.workers WHERE workers.id = $1::uuid AND NOT workers.dead)
     -- place of gates and budgets: everything, a queue, a tenant
       AND NOT EXISTS (SELECT FROM closed WHERE kind = 'all')
       AND lane.queue NOT IN (SELECT name FROM closed WHERE kind = 'queue')
       AND lane.tenant NOT IN (SELECT name FROM closed WHERE kind = 'tenant')
), lane AS MATERIALIZED (
    SELECT open.*
      FROM open
     ORDER BY phase_rank, urgency, min(head) OVER (PARTITION BY phase_rank, urgency, queue) NULLS LAST, queue,
              skip IS NOT NULL, min(place) OVER (PARTITION BY phase_rank, urgency, queue, tenant), head NULLS LAST
), oldest AS MATERIALIZED (
    -- Ageing: a few places go to the oldest due jobs of any priority. One descent per lane, and none at all when
    -- $5 is 0. Locked by the second level, which checks the state again: a row may have gone in between.
    SELECT jobs.id, jobs.limits
      FROM windlass.jobs
     WHERE jobs.id = ANY (ARRAY (
            SELECT first.id
              FROM lane
             CROSS JOIN LATERAL (
                SELECT jobs.id, jobs.run_at
                  FROM windlass.jobs
                 WHERE jobs.queue = lane.queue AND jobs.phase_rank = lane.phase_rank
                   AND (-jobs.priority) = lane.urgency AND jobs.tenant = lane.tenant
                   AND (jobs.limits IS NOT NULL) = lane.limited
                   AND jobs.status IN ('queued', 'failed') AND jobs.parked_on IS NULL
                   AND {due}
                   AND (jobs.run_at, jobs.id) >= (lane.floor_at, lane.floor_id)
                   AND NOT jobs.cancel_requested
                   AND jobs.type = ANY ($4::text[])
                   AND jobs.type NOT IN (SELECT name FROM closed WHERE kind = 'type'){free}{sound}
                   AND CASE $6::text WHEN 'with' THEN true WHEN 'only' THEN jobs.crashes > 0 ELSE jobs.crashes = 0 END
                   AND (jobs.updated_at <= windlass.now() - make_interval(secs => $7::float8) OR jobs.updated_at > windlass.now())
                 ORDER BY jobs.run_at, jobs.id
                 LIMIT $5::int) AS first
             ORDER BY first.run_at, first.id
             LIMIT $5::int))
       -- Said so that the claim's index does not fit: the planner would rather walk it than look up a few ids.
       AND jobs.status IN ('queued', 'failed') AND coalesce(jobs.parked_on, '') = '' AND NOT jobs.cancel_requested
     LIMIT $5::int
       FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT due.id, due.limits, due.run_at, lane.place AS lane
      FROM lane
     CROSS JOIN LATERAL (
        SELECT jobs.id, jobs.limits, jobs.run_at
          FROM windlass.jobs
         WHERE jobs.queue = lane.queue AND jobs.phase_rank = lane.phase_rank
           AND (-jobs.priority) = lane.urgency AND jobs.tenant = lane.tenant
           AND (jobs.limits IS NOT NULL) = lane.limited
           AND jobs.status IN ('queued', 'failed') AND jobs.parked_on IS NULL
           -- place of time: what is due now, and after a clock was set back what had been due by its own times
           AND {due}
           AND (jobs.run_at, jobs.id) >= (lane.floor_at, lane.floor_id)
           AND NOT jobs.cancel_requested
           -- place of types: unknown ones are skipped without a lease or an attempt
           AND jobs.type = ANY ($4::text[])
           -- place of gates: a type
           AND jobs.type NOT IN (SELECT name FROM closed WHERE kind = 'type')
           -- place of limits: keys that are full{free}
           -- place of rows that no program can read or claim: written before the CHECKs of the table, or past them{sound}
           AND CASE $6::text WHEN 'with' THEN true WHEN 'only' THEN jobs.crashes > 0 ELSE jobs.crashes = 0 END
           AND (jobs.updated_at <= windlass.now() - make_interval(secs => $7::float8) OR jobs.updated_at > windlass.now())
           AND jobs.id <> ALL (ARRAY (SELECT id FROM oldest))
         -- The steady pace orders by created_at instead: it claims ten jobs a minute and can afford to sort a lane.
         ORDER BY jobs.{order}, jobs.id
         -- place of fairness: a tenant's share of this claim
         LIMIT lane.quota OFFSET coalesce(lane.skip, 0)
           FOR UPDATE SKIP LOCKED) AS due
     LIMIT $2::int - (SELECT count(*) FROM oldest)
)

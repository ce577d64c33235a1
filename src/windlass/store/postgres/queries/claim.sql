-- Claim up to $2 due jobs for worker $1, one round trip, nothing waits.
--
--   $1 worker   $2 room   $3 token   $4 types   $5 places for the oldest   $6 suspects: with, without or only
--   $7 rest in seconds   $8 … $12 the lanes: queue, phase rank, -priority, and the floor as run_at and id
--
-- MATERIALIZED and the join to the write: `UPDATE … WHERE id IN (SELECT … LIMIT 10)` may run its subquery once per
-- row and has claimed 1,000 rows under another plan. The LATERAL runs lane by lane and stops, with its locks, as
-- soon as the outer LIMIT is reached; SKIP LOCKED leaves rows that another claim, a finish or an operator holds.
WITH closed AS MATERIALIZED (
    SELECT kind, name FROM windlass.gates WHERE state <> 'open'
), lane AS MATERIALIZED (
    SELECT lane.queue, lane.phase_rank, lane.urgency, lane.floor_at, lane.floor_id
      FROM unnest($8::text[], $9::int[], $10::int[], $11::timestamptz[], $12::uuid[])
           AS lane (queue, phase_rank, urgency, floor_at, floor_id)
     -- A worker that was declared dead while it was frozen claims nothing: its jobs would only have to be rescued.
     WHERE EXISTS (SELECT FROM windlass.workers WHERE workers.id = $1::uuid AND NOT workers.dead)
     -- place of gates: everything, a queue
       AND NOT EXISTS (SELECT FROM closed WHERE kind = 'all')
       AND lane.queue NOT IN (SELECT name FROM closed WHERE kind = 'queue')
     -- Queues of one priority are served by time: whose first job is the oldest comes first, so that none starves.
     ORDER BY lane.phase_rank, lane.urgency,
              (SELECT jobs.run_at
                 FROM windlass.jobs
                WHERE jobs.queue = lane.queue AND jobs.phase_rank = lane.phase_rank
                  AND (-jobs.priority) = lane.urgency AND jobs.status IN ('queued', 'failed')
                  AND (jobs.run_at, jobs.id) >= (lane.floor_at, lane.floor_id) AND jobs.run_at <= windlass.now()
                ORDER BY jobs.run_at, jobs.id
                LIMIT 1) NULLS LAST, lane.queue
), oldest AS MATERIALIZED (
    -- Ageing: a few places go to the oldest due jobs of any priority. One descent per lane, and none at all when
    -- $5 is 0. Locked by the second level, which checks the state again: a row may have gone in between.
    SELECT jobs.id
      FROM windlass.jobs
     WHERE jobs.id IN (
            SELECT first.id
              FROM lane
             CROSS JOIN LATERAL (
                SELECT jobs.id, jobs.run_at
                  FROM windlass.jobs
                 WHERE jobs.queue = lane.queue AND jobs.phase_rank = lane.phase_rank
                   AND (-jobs.priority) = lane.urgency AND jobs.status IN ('queued', 'failed')
                   AND jobs.run_at <= windlass.now()
                   AND (jobs.run_at, jobs.id) >= (lane.floor_at, lane.floor_id)
                   AND NOT jobs.cancel_requested
                   AND jobs.type = ANY ($4::text[])
                   AND jobs.type NOT IN (SELECT name FROM closed WHERE kind = 'type')
                   AND jobs.tenant NOT IN (SELECT name FROM closed WHERE kind = 'tenant')
                   AND CASE $6::text WHEN 'with' THEN true WHEN 'only' THEN jobs.crashes > 0 ELSE jobs.crashes = 0 END
                   AND jobs.updated_at <= windlass.now() - make_interval(secs => $7::float8)
                 ORDER BY jobs.run_at, jobs.id
                 LIMIT $5::int) AS first
             ORDER BY first.run_at, first.id
             LIMIT $5::int)
       AND jobs.status IN ('queued', 'failed') AND NOT jobs.cancel_requested
     LIMIT $5::int
       FOR UPDATE SKIP LOCKED
), picked AS MATERIALIZED (
    SELECT due.id
      FROM lane
     CROSS JOIN LATERAL (
        SELECT jobs.id
          FROM windlass.jobs
         WHERE jobs.queue = lane.queue AND jobs.phase_rank = lane.phase_rank
           AND (-jobs.priority) = lane.urgency AND jobs.status IN ('queued', 'failed')
           AND jobs.run_at <= windlass.now()
           AND (jobs.run_at, jobs.id) >= (lane.floor_at, lane.floor_id)
           AND NOT jobs.cancel_requested
           -- place of types: unknown ones are skipped without a lease or an attempt
           AND jobs.type = ANY ($4::text[])
           -- place of gates and budgets: a type, a tenant
           AND jobs.type NOT IN (SELECT name FROM closed WHERE kind = 'type')
           AND jobs.tenant NOT IN (SELECT name FROM closed WHERE kind = 'tenant')
           -- place of limits: keys that are full
           AND CASE $6::text WHEN 'with' THEN true WHEN 'only' THEN jobs.crashes > 0 ELSE jobs.crashes = 0 END
           AND jobs.updated_at <= windlass.now() - make_interval(secs => $7::float8)
           AND jobs.id <> ALL (ARRAY (SELECT id FROM oldest))
         -- place of fairness: tenants by weight come between the lane and run_at
         ORDER BY jobs.run_at, jobs.id
         LIMIT $2::int
           FOR UPDATE SKIP LOCKED) AS due
     LIMIT $2::int - (SELECT count(*) FROM oldest)
)
UPDATE windlass.jobs
   SET status = 'running', token = $3::uuid, fence = fence + 1, worker = $1::uuid, attempt = attempt + 1,
       claimed_at = windlass.now(), started_at = windlass.now(), updated_at = windlass.now()
  FROM (SELECT id, true AS aged FROM oldest UNION ALL SELECT id, false FROM picked) AS chosen
 WHERE jobs.id = chosen.id
RETURNING {columns}, chosen.aged

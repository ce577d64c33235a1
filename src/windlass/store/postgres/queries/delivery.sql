-- Delivery: the outbox, and claims of the very jobs that a broker delivered.

-- name: delivery
-- Read how jobs reach a broker; null: no broker carries them.
SELECT delivery FROM windlass.installation LIMIT 1

-- name: set_delivery
-- Write how jobs reach a broker. Returns the mode before, and so whether there are triggers already.
--
--   $1 mode, or null
--
-- The row's lock makes two processes that set a mode at once do it one after the other.
WITH known AS MATERIALIZED (
    SELECT id, delivery FROM windlass.installation LIMIT 1 FOR UPDATE
), written AS (
    UPDATE windlass.installation SET delivery = $1::text FROM known WHERE installation.id = known.id
)
SELECT delivery FROM known

-- name: wait_briefly
-- Give up after a moment when a table is locked, in this transaction: each writer of jobs waits behind a CREATE TRIGGER
-- that waits.
SELECT set_config('lock_timeout', '200ms', true)

-- name: make_outbox_triggers
-- Make the triggers that write the outbox. It needs the lock that keeps all writers of jobs away.
--
-- A claim changes a job from queued to running: it pays the condition of the second trigger and no call.
-- UPDATE OF, so that progress, costs and the mark `followed` do not even pay that.
CREATE TRIGGER deliver_new AFTER INSERT ON windlass.jobs
    REFERENCING NEW TABLE AS new_jobs FOR EACH STATEMENT EXECUTE FUNCTION windlass.deliver_new();
CREATE TRIGGER deliver_changed
    AFTER UPDATE OF status, parked_on, run_at, queue, priority, cancel_requested ON windlass.jobs
    FOR EACH ROW
    WHEN (NEW.status = 'dead' AND OLD.status <> 'dead'
          OR NEW.status IN ('queued', 'failed') AND NEW.parked_on IS NULL AND NOT NEW.cancel_requested
             AND (OLD.status NOT IN ('queued', 'failed') OR OLD.parked_on IS NOT NULL OR OLD.cancel_requested
                  OR NEW.run_at <> OLD.run_at OR NEW.queue <> OLD.queue OR NEW.priority <> OLD.priority))
    EXECUTE FUNCTION windlass.deliver_changed();

-- name: drop_outbox_triggers
-- Drop the triggers that write the outbox. It needs the lock that keeps all writers and readers of jobs away.
DROP TRIGGER deliver_new ON windlass.jobs;
DROP TRIGGER deliver_changed ON windlass.jobs;

-- name: clear_outbox
-- Delete a page of the outbox.
--
--   $1 page
DELETE FROM windlass.outbox
 WHERE id = ANY (ARRAY (SELECT id FROM windlass.outbox ORDER BY id LIMIT $1::int FOR UPDATE SKIP LOCKED))
RETURNING id

-- fragment: served_types
-- Types that a live worker takes from every queue; and types that a live worker takes from some queues, each with its
-- queue in one text.
worker AS MATERIALIZED (
    SELECT types, queues FROM windlass.workers WHERE NOT dead
), served AS MATERIALIZED (
    SELECT ARRAY (SELECT DISTINCT unnest(types) FROM worker WHERE queues IS NULL) AS everywhere,
           ARRAY (SELECT DISTINCT type || E'\x1f' || queue
                    FROM worker, unnest(types) AS type, unnest(queues) AS queue) AS somewhere
)

-- fragment: served
-- A live worker takes this job's type from its queue.
(jobs.type = ANY ((SELECT everywhere FROM served)::text[])
                OR jobs.type || E'\x1f' || jobs.queue = ANY ((SELECT somewhere FROM served)::text[]))

-- fragment: closed_by
-- What closes the job now, as a row of the outbox names it; null: nothing. Each list is hashed once for all jobs:
-- thousands of tenants may have spent their budgets.
CASE WHEN EXISTS (SELECT FROM closed WHERE kind = 'all') THEN 'gate:all:'
                 WHEN jobs.queue IN (SELECT name FROM closed WHERE kind = 'queue') THEN 'gate:queue:' || jobs.queue
                 WHEN jobs.type IN (SELECT name FROM closed WHERE kind = 'type') THEN 'gate:type:' || jobs.type
                 WHEN jobs.tenant IN (SELECT name FROM closed WHERE kind = 'tenant') THEN 'gate:tenant:' || jobs.tenant
                 END

-- name: lease_outbox
-- Lease due rows for a relay, with what their envelopes need of the jobs. One statement.
--
--   $1 most   $2 lease in seconds
--
-- A row whose job is not claimable any more is deleted: whatever makes it claimable again writes another row. A row whose
-- job is due later waits for that time. A row whose job is closed now waits for the gate. Each of them is read once.
-- Rows that wait are read by what they wait for: `reason` jumps from one to the next, one descent each, so that a hundred
-- thousand rows behind a paused queue cost one. They are half of the answer at most: rows that never waited come, too.
-- Rows are not read by `id > last`: a transaction that began earlier may commit a lower id later.
WITH RECURSIVE closed AS MATERIALIZED (
    {closed}
), {served_types}, reason AS (
    (SELECT waits_for FROM windlass.outbox WHERE waits_for IS NOT NULL ORDER BY waits_for LIMIT 1)
    UNION ALL
    SELECT following.waits_for
      FROM reason
     CROSS JOIN LATERAL (
        SELECT outbox.waits_for FROM windlass.outbox
         WHERE outbox.waits_for > reason.waits_for ORDER BY outbox.waits_for LIMIT 1) AS following
), over AS MATERIALIZED (
    SELECT waits_for
      FROM reason
     WHERE CASE WHEN waits_for LIKE 'gate:%'
                THEN waits_for NOT IN (SELECT 'gate:' || kind || ':' || name FROM closed)
                ELSE split_part(substr(waits_for, 8), E'\x1f', 1) = ANY ((SELECT everywhere FROM served)::text[])
                     OR substr(waits_for, 8) = ANY ((SELECT somewhere FROM served)::text[]) END
), freed AS MATERIALIZED (
    SELECT waited.id, waited.job, waited.kind, waited.deliver_at
      FROM over
     CROSS JOIN LATERAL (
        SELECT outbox.id, outbox.job, outbox.kind, outbox.deliver_at
          FROM windlass.outbox
         WHERE outbox.waits_for = over.waits_for AND outbox.deliver_at <= windlass.now()
         ORDER BY outbox.deliver_at, outbox.id
         LIMIT ($1::int + 1) / 2
           FOR UPDATE SKIP LOCKED) AS waited
     LIMIT ($1::int + 1) / 2
), due AS MATERIALIZED (
    SELECT outbox.id, outbox.job, outbox.kind, outbox.deliver_at
      FROM windlass.outbox
     WHERE outbox.waits_for IS NULL AND outbox.deliver_at <= windlass.now()
       AND (outbox.leased_until IS NULL OR outbox.leased_until <= windlass.now())
     ORDER BY outbox.deliver_at, outbox.id
     LIMIT $1::int - (SELECT count(*) FROM freed)
       FOR UPDATE SKIP LOCKED
), found AS MATERIALIZED (
    SELECT entry.id, entry.kind, entry.deliver_at, job.id AS job, job.queue, job.priority, job.type, job.input,
           job.trace, job.created_at, job.run_at, job.max_attempts, job.reason, job.closed_by,
           job.attempt + CASE WHEN entry.kind = 'deliver' THEN 1 ELSE 0 END AS attempt,
           CASE WHEN job.id IS NULL THEN 'drop'
                WHEN entry.kind = 'dead' THEN CASE WHEN job.status = 'dead' THEN 'send' ELSE 'drop' END
                WHEN NOT job.claimable THEN 'drop'
                WHEN NOT job.due OR job.closed_by IS NOT NULL THEN 'wait'
                ELSE 'send' END AS verdict
      FROM (SELECT * FROM freed UNION ALL SELECT * FROM due) AS entry
      LEFT JOIN LATERAL (
            SELECT jobs.*, {due_by_itself} AS due, {closed_by} AS closed_by,
                   {in_claim_index} AND NOT jobs.cancel_requested AS claimable
              FROM windlass.jobs
             WHERE jobs.id = entry.job
             LIMIT 1) AS job ON true
), dropped AS (
    DELETE FROM windlass.outbox WHERE id = ANY (ARRAY (SELECT id FROM found WHERE verdict = 'drop'))
 RETURNING 1
), written AS (
    UPDATE windlass.outbox
       SET leased_until = CASE WHEN found.verdict = 'send' THEN windlass.now() + make_interval(secs => $2::float8) END,
           deliver_at = CASE WHEN found.verdict = 'wait' THEN found.run_at ELSE found.deliver_at END,
           waits_for = CASE WHEN found.verdict = 'wait' THEN found.closed_by END
      FROM found
     WHERE outbox.id = ANY (ARRAY[found.id]) AND found.verdict <> 'drop'
)
SELECT sent.id, sent.kind, sent.job, sent.queue, sent.priority, sent.type, sent.input, sent.trace, sent.created_at,
       sent.attempt, sent.max_attempts, CASE WHEN sent.kind = 'dead' THEN sent.reason END AS reason,
       (SELECT count(*) FROM dropped)::int AS dropped,
       (SELECT count(*) FROM found)::int AS found,
       extract(epoch FROM least(
           (SELECT min(outbox.deliver_at) FROM windlass.outbox
             WHERE outbox.waits_for IS NULL AND outbox.deliver_at > windlass.now()),
           (SELECT min(ahead.deliver_at)
              FROM over
             CROSS JOIN LATERAL (
                SELECT outbox.deliver_at FROM windlass.outbox
                 WHERE outbox.waits_for = over.waits_for AND outbox.deliver_at > windlass.now()
                 ORDER BY outbox.deliver_at
                 LIMIT 1) AS ahead)) - windlass.now())::float8 AS next_in
  FROM (VALUES (1)) AS always (one)
  LEFT JOIN (SELECT * FROM found WHERE verdict = 'send') AS sent ON true
 ORDER BY sent.deliver_at, sent.id

-- name: settle_outbox
-- Delete the rows that the broker confirmed, and give the others back.
--
--   $1 ids of sent rows   $2 ids of unsent rows   $3 delay in seconds
WITH sent AS (
    DELETE FROM windlass.outbox WHERE id = ANY ($1::bigint[])
)
UPDATE windlass.outbox
   SET leased_until = NULL,
       deliver_at = CASE WHEN $3::float8 > 0 THEN windlass.now() + make_interval(secs => $3::float8)
                         ELSE deliver_at END
 WHERE id = ANY ($2::bigint[])

-- name: outbox_size
-- Count the rows that are due, up to a number, and read how long the oldest has been due.
--
--   $1 most
SELECT count(*)::int, extract(epoch FROM windlass.now() - min(deliver_at))::float8
  FROM (SELECT deliver_at
          FROM windlass.outbox
         WHERE waits_for IS NULL AND deliver_at <= windlass.now()
         ORDER BY deliver_at
         LIMIT $1::int) AS due

-- fragment: delivered
-- The delivered jobs that may be claimed now, locked, in the order in which they were delivered. The conditions are those
-- of a claim (fragment `claimable`, and the gates of `lanes_of_claim`). A row that another transaction holds is skipped.
--
--   $1 worker   $2 ids   $4 types   $5 queues; null: every queue   $6 suspects
delivered AS MATERIALIZED (
    SELECT jobs.id, jobs.limits, wanted.place
      FROM unnest($2::uuid[]) WITH ORDINALITY AS wanted (id, place)
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[wanted.id])
     -- coalesce, so that the claim's index does not fit: the planner would walk it instead of looking up a few ids.
     WHERE {claimable_status} AND coalesce(jobs.parked_on, '') = '' AND NOT jobs.cancel_requested
       AND {due_by_itself}
       AND jobs.type = ANY ($4::text[])
       AND ($5::text[] IS NULL OR jobs.queue = ANY ($5::text[]))
       AND ({closed_by}) IS NULL
       AND {readable}
       AND CASE $6::text WHEN 'with' THEN true WHEN 'only' THEN jobs.crashes > 0 ELSE jobs.crashes = 0 END
       AND EXISTS (SELECT FROM windlass.workers WHERE workers.id = $1::uuid AND NOT workers.dead)
     ORDER BY wanted.place
       FOR UPDATE OF jobs SKIP LOCKED
)

-- name: claim_delivered
-- Lease these very jobs to a worker, as far as they have no limits. Returns the others with their ids alone.
--
--   $1 worker   $2 ids   $3 token of the new leases   $4 types   $5 queues; null: every queue   $6 suspects
WITH closed AS MATERIALIZED (
    {closed}
), {delivered}, claimed AS (
    UPDATE windlass.jobs
       SET {leased}
      FROM delivered
     WHERE jobs.id = ANY (ARRAY[delivered.id]) AND delivered.limits IS NULL
 RETURNING {columns}
)
SELECT claimed.*, ARRAY (SELECT id FROM delivered WHERE limits IS NOT NULL ORDER BY place) AS limited
  FROM (VALUES (1)) AS always (one)
  LEFT JOIN claimed ON true

-- name: claim_delivered_limited
-- Lease these very jobs to a worker, with or without limits: as `claim_limited` does, from given jobs instead of lanes. A
-- job that meets a full key is parked at once: whatever unparks it writes its row of the outbox.
--
--   $1 … $6: as in `claim_delivered`
WITH closed AS MATERIALIZED (
    {closed}
), {delivered}, chosen AS MATERIALIZED (
    SELECT id, limits, false AS aged, place FROM delivered
), {wanted_keys}, skipped AS MATERIALIZED (
    SELECT NULL::uuid AS id, NULL::text AS key WHERE false
), {admitted}, to_park AS MATERIALIZED (
    SELECT id, key FROM refused WHERE key IN (SELECT key FROM full_now)
), {admission_written}
{claimed_with_keys}

-- name: refuse_delivered
-- Say why delivered jobs were not claimed, and put back into the outbox what can be claimed later.
--
--   $1 ids   $2 types   $3 queues; null: every queue   $4 suspects
--
-- A statement of its own, after the claim: the job is as it is now. `busy` remains where nothing speaks against the job
-- any more: its row or a counter was locked, or what refused it has just ended.
-- A type that this worker does not know comes back after a second, so that a fleet with different types does not pass
-- it round without a pause. A process that dies before this statement loses rows: a poll finds their jobs.
WITH closed AS MATERIALIZED (
    {closed}
), refused AS MATERIALIZED (
    SELECT wanted.id, job.status, job.type, job.queue, job.run_at, job.closed_by,
           CASE WHEN job.id IS NULL THEN
                     CASE (SELECT history.status FROM windlass.history WHERE history.id = wanted.id LIMIT 1)
                          WHEN 'succeeded' THEN 'finished' WHEN 'cancelled' THEN 'cancelled' ELSE 'gone' END
                WHEN job.status = 'dead' THEN 'finished'
                WHEN job.status = 'running' THEN 'owned'
                WHEN job.status = 'waiting' THEN 'waiting'
                WHEN job.cancel_requested THEN 'cancelled'
                WHEN NOT job.readable THEN 'gone'
                WHEN job.parked_on IS NOT NULL THEN 'limited'
                WHEN NOT job.type = ANY ($2::text[]) THEN 'unknown type'
                WHEN NOT job.queue = ANY ($3::text[]) THEN 'other queue'
                WHEN job.closed_by IS NOT NULL THEN 'closed'
                WHEN NOT job.due THEN 'not due'
                WHEN $4::text = 'without' AND job.crashes > 0 THEN 'suspect'
                ELSE 'busy' END AS reason
      FROM unnest($1::uuid[]) AS wanted (id)
      LEFT JOIN LATERAL (
            SELECT jobs.*, {closed_by} AS closed_by, {due_by_itself} AS due, {readable} AS readable
              FROM windlass.jobs
             WHERE jobs.id = wanted.id
             LIMIT 1) AS job ON true
), put_back AS (
    INSERT INTO windlass.outbox (job, deliver_at, waits_for)
    SELECT id,
           CASE WHEN reason = 'not due' THEN run_at
                WHEN reason = 'closed' THEN windlass.now()
                WHEN reason = 'busy' THEN windlass.now() + interval '0.2 seconds'
                ELSE windlass.now() + interval '1 second' END,
           CASE WHEN reason = 'closed' THEN closed_by
                WHEN reason IN ('unknown type', 'other queue') THEN 'worker:' || type || E'\x1f' || queue END
      FROM refused
     WHERE reason IN ('unknown type', 'other queue', 'closed', 'not due', 'busy')
       AND EXISTS (SELECT FROM windlass.installation WHERE delivery IS NOT NULL)
)
SELECT id, reason FROM refused

-- name: lanes_of_jobs
-- List where claimable jobs are, without what is closed.
WITH RECURSIVE {all_lanes}, closed AS MATERIALIZED (
    {closed}
)
SELECT queue, phase_rank, urgency, tenant, limited
  FROM lane
 WHERE NOT EXISTS (SELECT FROM closed WHERE kind = 'all')
   AND lane.queue NOT IN (SELECT name FROM closed WHERE kind = 'queue')
   AND lane.tenant NOT IN (SELECT name FROM closed WHERE kind = 'tenant')

-- name: undelivered_jobs
-- Lock a page of jobs of one lane that have been due and untouched for long, though a live worker could claim them.
--
--   $1 [{queue, phase_rank, urgency, tenant, limited, older, page, after_at, after_id}], one
--
-- Suspects are left out: they wait for a worker that isolates them.
WITH closed AS MATERIALIZED (
    {closed}
), {served_types}
SELECT found.id, found.run_at
  FROM json_to_recordset(CAST($1 AS json))
       AS lane (queue text, phase_rank int, urgency int, tenant text, limited boolean, older float8, page int,
                after_at timestamptz, after_id uuid)
 CROSS JOIN LATERAL (
    SELECT jobs.id, jobs.run_at
      FROM windlass.jobs
     WHERE {in_lane}
       AND jobs.run_at <= windlass.now() - make_interval(secs => lane.older)
       AND (jobs.run_at, jobs.id) > (coalesce(lane.after_at, '-infinity'),
                                     coalesce(lane.after_id, '00000000-0000-0000-0000-000000000000'))
       AND jobs.updated_at <= windlass.now() - make_interval(secs => lane.older)
       AND NOT jobs.cancel_requested AND jobs.crashes = 0 AND {readable}
       AND jobs.type NOT IN (SELECT name FROM closed WHERE kind = 'type')
       AND {served}
     ORDER BY jobs.run_at, jobs.id
     LIMIT lane.page
       FOR UPDATE SKIP LOCKED) AS found

-- name: publish_again
-- Put jobs into the outbox that are not in it: where no relay runs, a sweep must not add a row for each job each time.
--
--   $1 [id]
INSERT INTO windlass.outbox (job, deliver_at)
SELECT wanted.id, windlass.now()
  FROM unnest({ids}) AS wanted (id)
 WHERE NOT EXISTS (SELECT FROM windlass.outbox WHERE outbox.job = wanted.id OFFSET 0)
RETURNING job

-- name: bury_undelivered
-- Mark claimable jobs dead because no delivery reached a worker. Their rows are locked.
--
--   $1 [{id, message, fingerprint}]
WITH lost AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS lost (id uuid, message text, fingerprint text)
), dead AS (
    UPDATE windlass.jobs
       SET status = 'dead', reason = 'undelivered', finished_at = windlass.now(), updated_at = windlass.now(),
           error = json_build_object('type', 'Undelivered', 'message', lost.message, 'attempt', jobs.attempt,
                                     'attemptedAt', windlass.now()),
           fingerprint = lost.fingerprint, error_at = windlass.now(), error_worker = NULL
      FROM lost
     WHERE jobs.id = ANY (ARRAY[lost.id]) AND {claimable_status}
 RETURNING jobs.id, jobs.queue, jobs.phase
), attempt AS (
    {ended_without_worker}, 'dead' AS outcome FROM dead
), {figured}
SELECT id FROM dead

-- Delivery: the outbox, and claims of the very jobs that a broker delivered.

-- name: delivery
-- How jobs reach a broker; null: no broker carries them.
SELECT delivery FROM windlass_installation

-- name: set_delivery
-- Write how jobs reach a broker.
--   :mode or null
UPDATE windlass_installation SET delivery = :mode

-- name: make_outbox_triggers
-- Make the triggers that write the outbox. The mode is read at each insert.
CREATE TRIGGER windlass_deliver_new AFTER INSERT ON windlass_jobs
WHEN NEW.status IN ('queued', 'failed') AND NEW.parked_on IS NULL AND NOT NEW.cancel_requested
 AND (NEW.run_at <> NEW.created_at - 1 OR (SELECT delivery FROM windlass_installation) IS NOT 'direct')
BEGIN
    INSERT INTO windlass_outbox (job, deliver_at) VALUES (NEW.id, NEW.run_at);
END
-- then
CREATE TRIGGER windlass_deliver_changed
AFTER UPDATE OF status, parked_on, run_at, queue, priority, cancel_requested ON windlass_jobs
WHEN NEW.status = 'dead' AND OLD.status <> 'dead'
  OR NEW.status IN ('queued', 'failed') AND NEW.parked_on IS NULL AND NOT NEW.cancel_requested
     AND (OLD.status NOT IN ('queued', 'failed') OR OLD.parked_on IS NOT NULL OR OLD.cancel_requested
          OR NEW.run_at <> OLD.run_at OR NEW.queue <> OLD.queue OR NEW.priority <> OLD.priority)
BEGIN
    INSERT INTO windlass_outbox (job, deliver_at, kind)
    VALUES (NEW.id, iif(NEW.status = 'dead', NEW.updated_at, NEW.run_at), iif(NEW.status = 'dead', 'dead', 'deliver'));
END

-- name: drop_outbox_triggers
-- Drop the triggers that write the outbox.
DROP TRIGGER windlass_deliver_new
-- then
DROP TRIGGER windlass_deliver_changed

-- name: clear_outbox
-- Delete a page of the outbox.
--   :page
DELETE FROM windlass_outbox WHERE id IN (SELECT id FROM windlass_outbox ORDER BY id LIMIT :page)

-- fragment: served
-- A live worker takes this job's type from its queue.
(jobs.type IN (SELECT known.value
                 FROM windlass_workers AS workers, json_each(workers.types) AS known
                WHERE NOT workers.dead AND workers.queues IS NULL)
 OR (jobs.type, jobs.queue) IN (SELECT known.value, served.value
                                  FROM windlass_workers AS workers, json_each(workers.types) AS known,
                                       json_each(workers.queues) AS served
                                 WHERE NOT workers.dead))

-- fragment: closed_by
-- What closes the job now, as a row of the outbox names it; null: nothing. Each is a search by kind and name.   :now
coalesce((SELECT 'gate:all:' FROM ({closed}) WHERE kind = 'all'),
         (SELECT 'gate:queue:' || name FROM ({closed}) WHERE kind = 'queue' AND name = jobs.queue),
         (SELECT 'gate:type:' || name FROM ({closed}) WHERE kind = 'type' AND name = jobs.type),
         (SELECT 'gate:tenant:' || name FROM ({closed}) WHERE kind = 'tenant' AND name = jobs.tenant))

-- fragment: over
-- What rows of the outbox wait for, without what still keeps them: a loose index scan, one descent per reason, so that a
-- hundred thousand rows behind a paused queue cost one.   :now
reason (waits_for) AS (
    SELECT (SELECT min(waits_for) FROM windlass_outbox WHERE waits_for IS NOT NULL)
    UNION ALL
    SELECT (SELECT min(waits_for) FROM windlass_outbox WHERE waits_for > reason.waits_for)
      FROM reason
     WHERE reason.waits_for IS NOT NULL
), over AS MATERIALIZED (
    SELECT reason.waits_for
      FROM reason
     WHERE iif(reason.waits_for LIKE 'gate:%',
               NOT EXISTS (SELECT 1
                             FROM (SELECT substr(reason.waits_for, 6) AS gate) AS named, ({closed}) AS closed
                            WHERE closed.kind = substr(named.gate, 1, instr(named.gate, ':') - 1)
                              AND closed.name = substr(named.gate, instr(named.gate, ':') + 1)),
               EXISTS (SELECT 1
                         FROM (SELECT substr(reason.waits_for, 8, instr(reason.waits_for, char(31)) - 8) AS type,
                                      substr(reason.waits_for, instr(reason.waits_for, char(31)) + 1) AS queue) AS jobs
                        WHERE {served}))
)

-- name: free_outbox
-- Rows whose wait is over are due like all others.
--   :most   :now
WITH RECURSIVE {over}
UPDATE windlass_outbox SET waits_for = NULL
 WHERE id IN (SELECT waiting.id
                FROM over
                JOIN windlass_outbox AS waiting ON waiting.waits_for = over.waits_for AND waiting.deliver_at <= :now
               LIMIT :most)

-- name: due_outbox
-- The due rows of the outbox, with what their envelopes need of the jobs, and what becomes of each: `drop`, where the job
-- is not claimable any more; `wait`, where it is closed or due later; or `send`.
--   :most   :now
SELECT entry.id, entry.kind, jobs.id, jobs.queue, jobs.priority, jobs.type, jobs.input, jobs.trace, jobs.created_at,
       jobs.attempt + iif(entry.kind = 'deliver', 1, 0), jobs.max_attempts,
       iif(entry.kind = 'dead', jobs.reason, NULL), jobs.run_at, {closed_by} AS closed_by,
       CASE WHEN jobs.id IS NULL THEN 'drop'
            WHEN entry.kind = 'dead' THEN iif(jobs.status = 'dead', 'send', 'drop')
            WHEN NOT ({in_claim_index}) OR jobs.cancel_requested THEN 'drop'
            WHEN NOT {due_by_itself} OR {closed_by} IS NOT NULL THEN 'wait'
            ELSE 'send' END AS verdict
  FROM (SELECT * FROM windlass_outbox
         WHERE waits_for IS NULL AND deliver_at <= :now AND coalesce(leased_until, :now) <= :now
         ORDER BY deliver_at, id
         LIMIT :most) AS entry
  LEFT JOIN windlass_jobs AS jobs ON jobs.id = entry.job
 ORDER BY entry.deliver_at, entry.id

-- name: lease_outbox
-- Lease rows of the outbox.
--   :ids a JSON array   :until
UPDATE windlass_outbox SET leased_until = :until WHERE id IN (SELECT value FROM json_each(:ids))

-- name: keep_in_outbox
-- A row whose job is due later, or closed, waits for that.
--   :id   :deliver_at   :waits_for
UPDATE windlass_outbox SET deliver_at = :deliver_at, waits_for = :waits_for WHERE id = :id

-- name: delete_from_outbox
-- Delete rows of the outbox.
--   :ids a JSON array
DELETE FROM windlass_outbox WHERE id IN (SELECT value FROM json_each(:ids))

-- name: next_in_outbox
-- When the next row of the outbox is due.
--   :now
WITH RECURSIVE {over}
SELECT min(deliver_at)
  FROM (SELECT (SELECT min(deliver_at) FROM windlass_outbox WHERE waits_for IS NULL AND deliver_at > :now) AS deliver_at
        UNION ALL
        SELECT (SELECT min(deliver_at) FROM windlass_outbox
                 WHERE windlass_outbox.waits_for = over.waits_for AND deliver_at > :now)
          FROM over)

-- name: settle_outbox
-- Give rows back that were not published.
--   :ids a JSON array   :deliver_at or null: as it was
UPDATE windlass_outbox SET leased_until = NULL, deliver_at = coalesce(:deliver_at, deliver_at)
 WHERE id IN (SELECT value FROM json_each(:ids))

-- name: outbox_size
-- Count the rows that are due, up to a number, and read when the oldest was due.
--   :most   :now
SELECT count(*), min(deliver_at)
  FROM (SELECT deliver_at
          FROM windlass_outbox
         WHERE waits_for IS NULL AND deliver_at <= :now
         ORDER BY deliver_at
         LIMIT :most)

-- name: delivered_jobs
-- The delivered jobs that may be claimed now, in the order in which they were delivered. The conditions are those of a
-- claim. They are not leased yet: the write lock protects them until `claim`.
--   :ids, :types JSON arrays   :queues a JSON array, or null for every queue   :suspects with, without or only   :now
SELECT jobs.id, jobs.limits
  FROM json_each(:ids) AS wanted
  JOIN windlass_jobs AS jobs ON jobs.id = wanted.value
 WHERE {in_claim_index} AND NOT jobs.cancel_requested
   AND {due_by_itself}
   AND jobs.type IN (SELECT value FROM json_each(:types))
   AND (:queues IS NULL OR jobs.queue IN (SELECT value FROM json_each(:queues)))
   AND {closed_by} IS NULL
   AND {readable}
   AND CASE :suspects WHEN 'with' THEN 1 WHEN 'only' THEN jobs.crashes > 0 ELSE jobs.crashes = 0 END
 ORDER BY wanted.key

-- fragment: refused
-- Why delivered jobs were not claimed. `busy` remains where nothing speaks against the job any more.
--   :ids, :types JSON arrays   :queues a JSON array, or null for every queue   :suspects   :now
SELECT wanted.value AS id, jobs.type, jobs.queue, jobs.run_at, {closed_by} AS closed_by,
       CASE WHEN jobs.id IS NULL THEN
                 CASE (SELECT history.status FROM windlass_history AS history WHERE history.id = wanted.value)
                      WHEN 'succeeded' THEN 'finished' WHEN 'cancelled' THEN 'cancelled' ELSE 'gone' END
            WHEN jobs.status = 'dead' THEN 'finished'
            WHEN jobs.status = 'running' THEN 'owned'
            WHEN jobs.status = 'waiting' THEN 'waiting'
            WHEN jobs.cancel_requested THEN 'cancelled'
            WHEN NOT ({readable}) THEN 'gone'
            WHEN jobs.parked_on IS NOT NULL THEN 'limited'
            WHEN jobs.type NOT IN (SELECT value FROM json_each(:types)) THEN 'unknown type'
            WHEN :queues IS NOT NULL AND jobs.queue NOT IN (SELECT value FROM json_each(:queues)) THEN 'other queue'
            WHEN {closed_by} IS NOT NULL THEN 'closed'
            WHEN NOT {due_by_itself} THEN 'not due'
            WHEN :suspects = 'without' AND jobs.crashes > 0 THEN 'suspect'
            ELSE 'busy' END AS reason
  FROM json_each(:ids) AS wanted
  LEFT JOIN windlass_jobs AS jobs ON jobs.id = wanted.value

-- name: refuse_delivered
-- Say why delivered jobs were not claimed.
--   :ids, :types JSON arrays   :queues a JSON array, or null for every queue   :suspects   :now
SELECT id, reason FROM ({refused})

-- name: put_back
-- Put refused jobs back into the outbox that can be claimed later. A type that this worker does not know comes back after
-- a second, so that a fleet with different types does not pass it round without a pause.
--   as in `refuse_delivered`
INSERT INTO windlass_outbox (job, deliver_at, waits_for)
SELECT id,
       CASE reason WHEN 'not due' THEN run_at WHEN 'closed' THEN :now WHEN 'busy' THEN :now + 200000
                   ELSE :now + 1000000 END,
       CASE WHEN reason = 'closed' THEN closed_by
            WHEN reason IN ('unknown type', 'other queue') THEN 'worker:' || type || char(31) || queue END
  FROM ({refused})
 WHERE reason IN ('unknown type', 'other queue', 'closed', 'not due', 'busy')
   AND EXISTS (SELECT 1 FROM windlass_installation WHERE delivery IS NOT NULL)

-- name: undelivered_jobs
-- A page of jobs of one lane that have been due and untouched for long, though a live worker could claim them. Suspects
-- are left out: they wait for a worker that isolates them.
--   ?1 [{queue, phase_rank, priority, tenant, limited, older, page, after_at, after_id}], one   :now
SELECT jobs.id, jobs.run_at
  FROM (SELECT value ->> 'queue' AS queue, value ->> 'phase_rank' AS phase_rank, value ->> 'priority' AS priority,
               value ->> 'tenant' AS tenant, value ->> 'limited' AS limited,
               :now - CAST((value ->> 'older') * 1000000 AS INTEGER) AS until,
               coalesce(value ->> 'after_at', -9223372036854775807) AS after_at,
               coalesce(value ->> 'after_id', '') AS after_id
          FROM json_each(?1)) AS lane
 CROSS JOIN windlass_jobs AS jobs
 WHERE jobs.queue = lane.queue AND jobs.phase_rank = lane.phase_rank AND jobs.priority = lane.priority
   AND jobs.tenant = lane.tenant AND (jobs.limits IS NOT NULL) = lane.limited AND {in_claim_index}
   AND jobs.run_at <= lane.until AND (jobs.run_at, jobs.id) > (lane.after_at, lane.after_id)
   AND jobs.updated_at <= lane.until
   AND NOT jobs.cancel_requested AND jobs.crashes = 0 AND {readable}
   AND jobs.type NOT IN (SELECT name FROM ({closed}) WHERE kind = 'type')
   AND {served}
 ORDER BY jobs.run_at, jobs.id
 LIMIT (SELECT value ->> 'page' FROM json_each(?1))

-- name: publish_again
-- Put jobs into the outbox that are not in it: where no relay runs, a sweep must not add a row for each job each time.
--   ?1 [id]   ?2 now
INSERT INTO windlass_outbox (job, deliver_at)
SELECT value, ?2
  FROM json_each(?1)
 WHERE NOT EXISTS (SELECT 1 FROM windlass_outbox WHERE job = value)
RETURNING job

-- name: bury_undelivered
-- Claimable jobs are dead, because no delivery reached a worker.
--   ?1 [{id, message, fingerprint}]   ?2 now
INSERT INTO windlass_figures (at, worker, queue, phase, dead, runs, waits)
SELECT ?2 - ?2 % 10000000, lower(hex(randomblob(16))), queue, phase, 1, '[]', '[]'
  FROM windlass_jobs
 WHERE id IN (SELECT value ->> 'id' FROM json_each(?1)) AND {claimable_status}
-- then
UPDATE windlass_jobs
   SET status = 'dead', reason = 'undelivered', finished_at = ?2, updated_at = ?2,
       error = json_object('type', 'Undelivered', 'message', lost.message, 'attempt', attempt, 'attemptedAt',
                           strftime('%Y-%m-%dT%H:%M:%fZ', ?2 / 1000000.0, 'unixepoch')),
       fingerprint = lost.fingerprint, error_at = ?2, error_worker = NULL
  FROM (SELECT value ->> 'id' AS id, value ->> 'message' AS message, value ->> 'fingerprint' AS fingerprint
          FROM json_each(?1)) AS lost
 WHERE windlass_jobs.id = lost.id AND {claimable_status}
RETURNING id

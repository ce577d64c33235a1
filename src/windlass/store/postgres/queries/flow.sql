-- Flow: waits, edges, links, signals.

-- name: insert_links
-- Names under which a job finds others.   $1 [{job, name, target, place}]
INSERT INTO windlass.links (job, name, target, place)
SELECT job, name, target, place
  FROM json_to_recordset(CAST($1 AS json)) AS new (job uuid, name text, target uuid, place int)
    ON CONFLICT (job, name) DO UPDATE SET target = excluded.target, place = excluded.place

-- name: links
-- The jobs that this one knows by name, as they are now.   $1 id
SELECT links.name, links.target, found.status, found.output::text, found.error::text
  FROM windlass.links
  LEFT JOIN LATERAL (
    SELECT status, output, error FROM windlass.jobs WHERE jobs.id = links.target
    UNION ALL
    SELECT status, output, error FROM windlass.history WHERE history.id = links.target
    LIMIT 1) AS found ON true
 WHERE links.job = $1
 ORDER BY links.place, links.name

-- name: children
-- The jobs that these created and that have not ended. Those that run are asked to stop; the others are the answer.
--   $1 [id]
WITH found AS MATERIALIZED (
    SELECT jobs.id
      FROM windlass.jobs
     WHERE jobs.parent = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
), child AS MATERIALIZED (
    SELECT jobs.id, jobs.status
      FROM found
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[found.id]) AND jobs.status <> 'dead'
     ORDER BY found.id
       FOR UPDATE OF jobs
), asked AS (
    UPDATE windlass.jobs SET cancel_requested = true, updated_at = windlass.now()
      FROM child
     WHERE jobs.id = ANY (ARRAY[child.id]) AND child.status = 'running'
)
SELECT id FROM child WHERE status <> 'running'

-- name: ended_jobs
-- Jobs that just ended and whose end changes more than themselves.   $1 [id]
WITH ids AS MATERIALIZED (
    SELECT value::uuid AS id FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)
)
SELECT jobs.id, jobs.status, jobs.tenant, jobs.trace, jobs.input::text, jobs.output::text, jobs.error::text,
       jobs.consequences::text
  FROM ids
  JOIN windlass.jobs ON jobs.id = ANY (ARRAY[ids.id])
 WHERE jobs.followed AND jobs.status = 'dead'
UNION ALL
SELECT jobs.id, jobs.status, jobs.tenant, jobs.trace, jobs.input::text, jobs.output::text, jobs.error::text,
       jobs.consequences::text
  FROM ids
  JOIN windlass.history AS jobs ON jobs.id = ANY (ARRAY[ids.id])
 WHERE jobs.followed

-- name: ended_states
-- States of jobs that are in the history, or whose key for ever tells that they succeeded.   $1 [id]
SELECT id, status
  FROM windlass.history
 WHERE id = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
UNION
SELECT job, 'succeeded'
  FROM windlass.keys
 WHERE job = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
   AND forever AND NOT free AND ended_at IS NOT NULL

-- name: mark_followed
-- Somebody waits for these jobs: their end changes more than themselves. Locks in id order.   $1 [id]
WITH held AS MATERIALIZED (
    SELECT jobs.id
      FROM windlass.jobs
     WHERE jobs.id = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
     ORDER BY jobs.id
       FOR UPDATE
)
UPDATE windlass.jobs SET followed = true
  FROM held
 WHERE jobs.id = ANY (ARRAY[held.id])
RETURNING jobs.id, jobs.status

-- name: lock_wait_graph
-- Until the commit, nobody else closes a round of waits.   $1 []
SELECT pg_advisory_xact_lock(7745966692414833) WHERE CAST($1 AS json) IS NOT NULL

-- name: cycles
-- Jobs that would wait for one that waits, over any number of others, for them.   $1 [{job, awaited}]
WITH RECURSIVE wish AS MATERIALIZED (
    SELECT job, awaited FROM json_to_recordset(CAST($1 AS json)) AS wish (job uuid, awaited uuid)
), chain AS (
    SELECT job, awaited FROM wish
    UNION
    -- LATERAL and a scalar subquery, so that each step is a descent of an index and never a scan of all waits.
    SELECT chain.job, following.awaited
      FROM chain
     CROSS JOIN LATERAL (
        SELECT edges.awaited
          FROM windlass.edges
         WHERE edges.waiter = chain.awaited AND NOT edges.done
           AND edges.fence = (SELECT waits.fence FROM windlass.waits WHERE waits.job = edges.waiter)
        OFFSET 0) AS following
)
SELECT DISTINCT job FROM chain WHERE awaited = job

-- name: insert_edges
-- Who waits for whom.   $1 [{awaited, waiter, fence, policy, done, ok}]
INSERT INTO windlass.edges (awaited, waiter, fence, policy, done, ok)
SELECT awaited, waiter, fence, policy, done, ok
  FROM json_to_recordset(CAST($1 AS json))
       AS new (awaited uuid, waiter uuid, fence bigint, policy text, done boolean, ok boolean)
    ON CONFLICT (awaited, waiter) DO UPDATE
   SET fence = excluded.fence, policy = excluded.policy, done = excluded.done, ok = excluded.ok

-- name: begin_waits
-- Jobs that are waiting by now; the answer are those whose signal has come already: their rows are locked, so that one
-- which is sent from here on finds them waiting.   $1 [{job, fence, need, pending, succeeded, bad, total, batch, signal, delay}]
WITH new AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json))
        AS new (job uuid, fence bigint, need int, pending int, succeeded int, bad int, total int, batch boolean, signal text, delay float8)
), put AS (
    INSERT INTO windlass.waits (job, fence, need, pending, succeeded, bad, total, batch, signal, wake_at)
    SELECT job, fence, need, pending, succeeded, bad, total, batch, signal,
           windlass.now() + make_interval(secs => delay) FROM new
        ON CONFLICT (job) DO UPDATE
       SET fence = excluded.fence, need = excluded.need, pending = excluded.pending, succeeded = excluded.succeeded,
           bad = excluded.bad, total = excluded.total,
           batch = excluded.batch, signal = excluded.signal, wake_at = excluded.wake_at
)
SELECT new.job
  FROM new
 WHERE EXISTS (SELECT FROM windlass.signals WHERE signals.job = new.job AND signals.name = new.signal OFFSET 0)

-- name: mark_arrivals
-- Awaited jobs ended: mark their edges, once.   $1 [{awaited, ok}]
UPDATE windlass.edges
   SET done = true, ok = ended.ok OR edges.policy = 'continue'
  FROM json_to_recordset(CAST($1 AS json)) AS ended (awaited uuid, ok boolean)
 WHERE edges.awaited = ANY (ARRAY[ended.awaited]) AND NOT edges.done
RETURNING edges.waiter, edges.fence, edges.awaited, edges.policy, ended.ok

-- name: count_arrivals
-- Arrivals on their waiters. The lock on a waiter's row, in one order, makes one arrival the last.
--   $1 [{job, fence, arrived, succeeded, bad}]
WITH arrived AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS arrived (job uuid, fence bigint, arrived int, succeeded int, bad int)
), held AS MATERIALIZED (
    SELECT waits.job, arrived.arrived, arrived.succeeded, arrived.bad
      FROM arrived
      JOIN windlass.waits ON waits.job = ANY (ARRAY[arrived.job]) AND waits.fence = arrived.fence
     ORDER BY arrived.job
       FOR UPDATE OF waits
)
UPDATE windlass.waits
   SET pending = waits.pending - held.arrived, succeeded = waits.succeeded + held.succeeded,
       bad = waits.bad + held.bad
  FROM held
 WHERE waits.job = ANY (ARRAY[held.job])
RETURNING waits.job, waits.fence, waits.need, waits.pending, waits.succeeded, waits.batch

-- name: count_batch
-- A batch's counters, as its wait has them now, on the job that waits. A row that somebody holds is skipped: the next
-- arrival, or the wake-up, says it all again.   $1 [id]
WITH held AS MATERIALIZED (
    SELECT jobs.id, waits.total, waits.total - waits.pending - waits.bad AS processed, waits.bad
      FROM windlass.jobs
      JOIN windlass.waits ON waits.job = ANY (ARRAY[jobs.id]) AND waits.batch
     WHERE jobs.id = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
       AND jobs.status = 'waiting'
     ORDER BY jobs.id
       FOR UPDATE OF jobs SKIP LOCKED
)
UPDATE windlass.jobs
   SET total = held.total, processed = held.processed, failed = held.bad, updated_at = windlass.now()
  FROM held
 WHERE jobs.id = ANY (ARRAY[held.id])

-- name: fatal_edges
-- Edges that decide a wait whatever else may come.   $1 [id]
SELECT edges.waiter, edges.policy, edges.awaited
  FROM windlass.edges
 WHERE edges.waiter = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
   AND edges.done AND NOT edges.ok AND edges.policy IN ('fail', 'skip')
   AND edges.fence = (SELECT waits.fence FROM windlass.waits WHERE waits.job = edges.waiter)

-- name: wake_waiting
-- What these jobs waited for is there, or cannot come. A row that somebody holds is skipped.   $1 [id]
WITH held AS MATERIALIZED (
    SELECT jobs.id
      FROM windlass.jobs
     WHERE jobs.id = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
       AND jobs.status = 'waiting'
     ORDER BY jobs.id
       FOR UPDATE SKIP LOCKED
)
UPDATE windlass.jobs SET status = 'queued', run_at = windlass.now(), updated_at = windlass.now(), reason = NULL
  FROM held
 WHERE jobs.id = ANY (ARRAY[held.id])
RETURNING jobs.id, jobs.queue

-- name: due_waits
-- Waiting jobs whose time is up, and those whose need is met and whom nobody could wake; nothing waits.   $1 [page]
WITH due AS MATERIALIZED (
    (SELECT job FROM windlass.waits WHERE wake_at <= windlass.now() ORDER BY wake_at LIMIT 1000)
    UNION
    (SELECT job FROM windlass.waits WHERE need > 0 AND (succeeded >= need OR succeeded + pending < need) LIMIT 1000)
)
SELECT waits.job
  FROM windlass.waits
 WHERE waits.job = ANY (ARRAY (SELECT job FROM due))
 LIMIT (SELECT value::int FROM json_array_elements_text(CAST($1 AS json)) AS page (value))
   FOR UPDATE SKIP LOCKED

-- name: bury_waiting
-- What these jobs waited for cannot come: they die. A row that somebody holds is skipped.   $1 [{id, reason}]
WITH lost AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS lost (id uuid, reason text)
), held AS MATERIALIZED (
    SELECT lost.id, lost.reason
      FROM lost
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[lost.id]) AND jobs.status = 'waiting'
     ORDER BY lost.id
       FOR UPDATE OF jobs SKIP LOCKED
), dead AS (
    UPDATE windlass.jobs
       SET status = 'dead', reason = lost.reason, finished_at = windlass.now(), updated_at = windlass.now(),
           error = json_build_object('type', 'Abandoned', 'message', lost.reason, 'attempt', jobs.attempt,
                                     'attemptedAt', windlass.now())
      FROM held AS lost
     WHERE jobs.id = ANY (ARRAY[lost.id])
 RETURNING jobs.id, jobs.type, jobs.queue, jobs.tenant, jobs.reason
), audited AS (
    INSERT INTO windlass.audit (action, job, type, queue, tenant, reason)
    SELECT 'JOB_DEAD', id, type, queue, tenant, reason FROM dead
)
SELECT id FROM dead

-- name: reopen_edges
-- A job comes back from its end: whoever still waits for it waits for it again.   $1 [id]
WITH again AS MATERIALIZED (
    SELECT edges.awaited, edges.waiter, edges.fence, edges.ok
      FROM windlass.edges
     WHERE edges.awaited = (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value))
       AND edges.done
       FOR UPDATE
)
UPDATE windlass.edges SET done = false, ok = false
  FROM again
 WHERE (edges.awaited, edges.waiter) BETWEEN (again.awaited, again.waiter) AND (again.awaited, again.waiter)
RETURNING edges.waiter, edges.fence, again.ok

-- name: delete_edges
-- These jobs ended: nobody counts for them any more. Before unwait.sql, in the order in which arrivals lock.   $1 [id]
DELETE FROM windlass.edges
 WHERE waiter = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))

-- name: delete_waits
-- These jobs wait for nothing any more.   $1 [id]
DELETE FROM windlass.waits
 WHERE job = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))

-- name: wait_of_job
-- What a job waits for.   $1 id
SELECT need, pending, succeeded, signal, wake_at FROM windlass.waits WHERE job = $1

-- name: awaits_signal
-- Whether a job waits for this very signal.   $1 [{job, name}]
SELECT waits.job
  FROM windlass.waits
  JOIN json_to_recordset(CAST($1 AS json)) AS sent (job uuid, name text)
    ON waits.job = ANY (ARRAY[sent.job]) AND waits.signal = sent.name

-- name: insert_signal
-- The first signal of a name is kept; a JSON null comes out of the record as none.   $1 [{job, name, payload}]
INSERT INTO windlass.signals (job, name, payload)
SELECT job, name, coalesce(payload, 'null') FROM json_to_recordset(CAST($1 AS json)) AS new (job uuid, name text, payload json)
    ON CONFLICT (job, name) DO NOTHING
RETURNING job

-- name: prune_flow
-- What outlived its job, a page of each: names, steps and signals of jobs that are gone, and keys that refuse nobody. The
-- answer is the size of the fullest page.   $1 seconds   $2 page
WITH horizon AS MATERIALIZED (
    SELECT windlass.now() - make_interval(secs => $1::float8) AS at
), old_links AS (
    DELETE FROM windlass.links
     WHERE ctid = ANY (ARRAY (
            SELECT links.ctid
              FROM windlass.links
             WHERE links.at < (SELECT at FROM horizon)
               AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = links.job OFFSET 0)
               AND NOT EXISTS (SELECT FROM windlass.history WHERE history.id = links.job OFFSET 0)
             LIMIT $2::int))
 RETURNING 1
), old_steps AS (
    DELETE FROM windlass.steps
     WHERE ctid = ANY (ARRAY (
            SELECT steps.ctid
              FROM windlass.steps
             WHERE steps.at < (SELECT at FROM horizon)
               AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = steps.job OFFSET 0)
               AND NOT EXISTS (SELECT FROM windlass.history WHERE history.id = steps.job OFFSET 0)
             LIMIT $2::int))
 RETURNING 1
), old_signals AS (
    DELETE FROM windlass.signals
     WHERE ctid = ANY (ARRAY (
            SELECT signals.ctid
              FROM windlass.signals
             WHERE signals.at < (SELECT at FROM horizon)
               AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = signals.job OFFSET 0)
               AND NOT EXISTS (SELECT FROM windlass.history WHERE history.id = signals.job OFFSET 0)
             LIMIT $2::int))
 RETURNING 1
), old_windows AS (
    DELETE FROM windlass.keys
     WHERE ctid = ANY (ARRAY (SELECT keys.ctid FROM windlass.keys WHERE keys.until <= windlass.now() LIMIT $2::int))
 RETURNING 1
), old_keys AS (
    DELETE FROM windlass.keys
     WHERE ctid = ANY (ARRAY (
            SELECT keys.ctid
              FROM windlass.keys
             WHERE keys.ended_at < (SELECT at FROM horizon)
               AND (keys.free OR (NOT keys.forever AND keys.until IS NULL))
               AND NOT coalesce(keys.until <= windlass.now(), false)
               AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = keys.job OFFSET 0)
             LIMIT $2::int))
 RETURNING 1
)
SELECT greatest((SELECT count(*) FROM old_links), (SELECT count(*) FROM old_steps), (SELECT count(*) FROM old_signals),
                (SELECT count(*) FROM old_windows), (SELECT count(*) FROM old_keys))

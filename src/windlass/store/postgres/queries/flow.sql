-- Flow: waits, edges, links, signals.

-- name: insert_links
-- Write the names under which a job finds other jobs.
--
--   $1 [{job, name, target, place}]
INSERT INTO windlass.links (job, name, target, place)
SELECT job, name, target, place
  FROM json_to_recordset(CAST($1 AS json)) AS new (job uuid, name text, target uuid, place int)
    ON CONFLICT (job, name) DO UPDATE SET target = excluded.target, place = excluded.place

-- name: links
-- List the jobs that a job knows by name, with their current states.
--
--   $1 id   $2 page; null: all of them
SELECT links.name, links.target, found.status, found.output::text, found.error::text
  FROM windlass.links
  LEFT JOIN LATERAL (
    SELECT status, output, error FROM windlass.jobs WHERE jobs.id = links.target
    UNION ALL
    SELECT status, output, error FROM windlass.history WHERE history.id = links.target
    LIMIT 1) AS found ON true
 WHERE links.job = $1
 ORDER BY links.place, links.name
 LIMIT $2::int

-- name: children
-- Return the jobs of the same tenant that these jobs created, that have not ended and do not run. Running children get a
-- request to cancel.
--
--   $1 [{job, tenant}]
WITH parent AS MATERIALIZED (
    SELECT job, tenant FROM json_to_recordset(CAST($1 AS json)) AS parent (job uuid, tenant text)
), found AS MATERIALIZED (
    SELECT jobs.id
      FROM windlass.jobs
     WHERE jobs.parent = ANY (ARRAY (SELECT job FROM parent))
       AND EXISTS (SELECT FROM parent WHERE parent.job = jobs.parent AND parent.tenant = jobs.tenant)
), child AS MATERIALIZED (
    SELECT jobs.id, jobs.status
      FROM found
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[found.id]) AND jobs.status <> 'dead'
     ORDER BY found.id
       FOR UPDATE OF jobs
), requested AS (
    UPDATE windlass.jobs SET cancel_requested = true, updated_at = windlass.now()
      FROM child
     WHERE jobs.id = ANY (ARRAY[child.id]) AND child.status = 'running'
)
SELECT id FROM child WHERE status <> 'running'

-- name: ended_jobs
-- Read jobs that just ended and are followed: their end changes more than themselves.
--
--   $1 [id]
WITH ids AS MATERIALIZED (
    SELECT value::uuid AS id FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)
)
SELECT jobs.id, jobs.status, jobs.tenant, jobs.trace, jobs.input::text, jobs.output::text, jobs.error::text,
       jobs.follow_ups::text
  FROM ids
  JOIN windlass.jobs ON jobs.id = ANY (ARRAY[ids.id])
 WHERE jobs.followed AND jobs.status = 'dead'
UNION ALL
SELECT jobs.id, jobs.status, jobs.tenant, jobs.trace, jobs.input::text, jobs.output::text, jobs.error::text,
       jobs.follow_ups::text
  FROM ids
  JOIN windlass.history AS jobs ON jobs.id = ANY (ARRAY[ids.id])
 WHERE jobs.followed

-- name: ended_states
-- Read the states of jobs that are in the history, or succeeded by the record of a permanent key. A key that dead or
-- cancelled jobs hold as well does not tell how its job ended.
--
--   $1 [id]
SELECT id, status
  FROM windlass.history
 WHERE id = ANY ({ids})
UNION
SELECT job, 'succeeded'
  FROM windlass.keys
 WHERE job = ANY ({ids})
   AND forever AND NOT free AND ended_at IS NOT NULL AND NOT states && ARRAY['dead', 'cancelled']

-- name: mark_followed
-- Mark jobs that another job waits for: their end changes more than themselves. Locks in the order of ids.
--
--   $1 [id]
WITH held AS MATERIALIZED (
    SELECT jobs.id
      FROM windlass.jobs
     WHERE jobs.id = ANY ({ids})
     ORDER BY jobs.id
       FOR UPDATE
)
UPDATE windlass.jobs SET followed = true
  FROM held
 WHERE jobs.id = ANY (ARRAY[held.id])
RETURNING jobs.id, jobs.status

-- name: lock_wait_graph
-- Until the commit, no other transaction adds waits: two of them together could close a cycle.
SELECT pg_advisory_xact_lock(7745966692414833)

-- name: cycles
-- Find jobs that would wait for a job that waits, directly or over other jobs, for them.
--
--   $1 [{job, awaited}]
WITH RECURSIVE new_wait AS MATERIALIZED (
    SELECT job, awaited FROM json_to_recordset(CAST($1 AS json)) AS new_wait (job uuid, awaited uuid)
), chain AS (
    SELECT job, awaited FROM new_wait
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
-- Write which job waits for which.
--
--   $1 [{awaited, waiter, fence, policy, done, ok}]
INSERT INTO windlass.edges (awaited, waiter, fence, policy, done, ok)
SELECT awaited, waiter, fence, policy, done, ok
  FROM json_to_recordset(CAST($1 AS json))
       AS new (awaited uuid, waiter uuid, fence bigint, policy text, done boolean, ok boolean)
    ON CONFLICT (awaited, waiter) DO UPDATE
   SET fence = excluded.fence, policy = excluded.policy, done = excluded.done, ok = excluded.ok

-- name: begin_waits
-- Write what jobs wait for. Returns the jobs that have their signal already.
--
--   $1 [{job, fence, need, pending, succeeded, bad, total, batch, signal, delay}]
--
-- The rows of these jobs are locked, so that a signal that is sent from now on finds them waiting.
WITH new AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json))
        AS new (job uuid, fence bigint, need int, pending int, succeeded int, bad int, total int, batch boolean,
                signal text, delay float8)
), written AS (
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
-- Mark the edges of awaited jobs that ended, each edge once.
--
--   $1 [{awaited, ok}]
UPDATE windlass.edges
   SET done = true, ok = ended.ok OR edges.policy = 'continue'
  FROM json_to_recordset(CAST($1 AS json)) AS ended (awaited uuid, ok boolean)
 WHERE edges.awaited = ANY (ARRAY[ended.awaited]) AND NOT edges.done
RETURNING edges.waiter, edges.fence, edges.awaited, edges.policy, ended.ok

-- name: count_arrivals
-- Count arrivals on the waiting jobs. The rows of the waits are locked in one order, so that exactly one arrival is the
-- last.
--
--   $1 [{job, fence, arrived, succeeded, bad}]
WITH arrived AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json))
        AS arrived (job uuid, fence bigint, arrived int, succeeded int, bad int)
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
-- Write a batch's counters, as its wait has them now, into the job that waits.
--
--   $1 [id]
--
-- A row that another transaction holds is skipped: the next arrival, or the wake-up, writes all counters again.
WITH held AS MATERIALIZED (
    SELECT jobs.id, waits.total, waits.total - waits.pending - waits.bad AS processed, waits.bad
      FROM windlass.jobs
      JOIN windlass.waits ON waits.job = ANY (ARRAY[jobs.id]) AND waits.batch
     WHERE jobs.id = ANY ({ids})
       AND jobs.status = 'waiting'
     ORDER BY jobs.id
       FOR UPDATE OF jobs SKIP LOCKED
)
UPDATE windlass.jobs
   SET total = held.total, processed = held.processed, failed = held.bad, updated_at = windlass.now()
  FROM held
 WHERE jobs.id = ANY (ARRAY[held.id])

-- name: fatal_edges
-- Find edges that decide a wait, whatever else may arrive.
--
--   $1 [id]
SELECT edges.waiter, edges.policy, edges.awaited
  FROM windlass.edges
 WHERE edges.waiter = ANY ({ids})
   AND edges.done AND NOT edges.ok AND edges.policy IN ('fail', 'skip')
   AND edges.fence = (SELECT waits.fence FROM windlass.waits WHERE waits.job = edges.waiter)

-- name: wake_waiting
-- Queue jobs after their wait: what they waited for arrived, or cannot arrive. A row that another transaction holds
-- is skipped.
--
--   $1 [id]
WITH held AS MATERIALIZED (
    SELECT jobs.id
      FROM windlass.jobs
     WHERE jobs.id = ANY ({ids})
       AND jobs.status = 'waiting'
     ORDER BY jobs.id
       FOR UPDATE SKIP LOCKED
)
UPDATE windlass.jobs SET status = 'queued', run_at = windlass.now(), updated_at = windlass.now(), reason = NULL
  FROM held
 WHERE jobs.id = ANY (ARRAY[held.id])
RETURNING jobs.id, jobs.queue

-- name: due_waits
-- Find waiting jobs that time out now, and waiting jobs with a met need that could not be woken, because their row was
-- locked at that moment. Waits for no lock.
--
--   $1 [page]
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
-- Mark jobs dead because what they waited for cannot arrive. A row that another transaction holds is skipped.
--
--   $1 [{id, reason, fingerprint}]
WITH abandoned AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS abandoned (id uuid, reason text, fingerprint text)
), held AS MATERIALIZED (
    SELECT abandoned.id, abandoned.reason, abandoned.fingerprint
      FROM abandoned
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[abandoned.id]) AND jobs.status = 'waiting'
     ORDER BY abandoned.id
       FOR UPDATE OF jobs SKIP LOCKED
), dead AS (
    UPDATE windlass.jobs
       SET status = 'dead', reason = held.reason, finished_at = windlass.now(), updated_at = windlass.now(),
           error = json_build_object('type', 'Abandoned', 'message', held.reason, 'attempt', jobs.attempt,
                                     'attemptedAt', windlass.now()),
           fingerprint = held.fingerprint, error_at = windlass.now(), error_worker = NULL
      FROM held
     WHERE jobs.id = ANY (ARRAY[held.id])
 RETURNING jobs.id, jobs.type, jobs.queue, jobs.phase, jobs.tenant, jobs.reason
), audited AS (
    INSERT INTO windlass.audit (action, job, type, queue, tenant, reason)
    SELECT 'JOB_DEAD', id, type, queue, tenant, reason FROM dead
), attempt AS (
    {ended_without_worker}, 'dead' AS outcome FROM dead
), {figured}
SELECT id FROM dead

-- name: reopen_edges
-- Count a job as not ended again, because it came back: jobs that still wait for it wait for it again.
--
--   $1 [id]
WITH reopened AS MATERIALIZED (
    SELECT edges.awaited, edges.waiter, edges.fence, edges.ok
      FROM windlass.edges
     WHERE edges.awaited = {id}
       AND edges.done
       FOR UPDATE
)
UPDATE windlass.edges SET done = false, ok = false
  FROM reopened
 WHERE (edges.awaited, edges.waiter) BETWEEN (reopened.awaited, reopened.waiter) AND (reopened.awaited, reopened.waiter)
RETURNING edges.waiter, edges.fence, reopened.ok

-- name: delete_edges
-- Delete the edges of waiting jobs that ended. Runs before `delete_waits`, in the order in which arrivals lock.
--
--   $1 [id]
DELETE FROM windlass.edges
 WHERE waiter = ANY ({ids})

-- name: delete_waits
-- Delete the waits of jobs that ended.
--
--   $1 [id]
DELETE FROM windlass.waits
 WHERE job = ANY ({ids})

-- name: waits_of_jobs
-- Read what jobs wait for.
--
--   $1 ids
SELECT job, need, pending, succeeded, signal, wake_at FROM windlass.waits WHERE job = ANY ($1::uuid[])

-- name: awaits_signal
-- Check whether a job waits for exactly this signal.
--
--   $1 [{job, name}]
SELECT waits.job
  FROM windlass.waits
  JOIN json_to_recordset(CAST($1 AS json)) AS sent (job uuid, name text)
    ON waits.job = ANY (ARRAY[sent.job]) AND waits.signal = sent.name

-- name: insert_signal
-- Keep the first signal of a name. A JSON null leaves the record as SQL's NULL, hence the coalesce.
--
--   $1 [{job, name, payload}]
INSERT INTO windlass.signals (job, name, payload)
SELECT job, name, coalesce(payload, 'null')
  FROM json_to_recordset(CAST($1 AS json)) AS new (job uuid, name text, payload json)
    ON CONFLICT (job, name) DO NOTHING
RETURNING job

-- name: prune_flow
-- Delete what outlived its job, a page of each kind: links, steps and signals of jobs that are gone, and keys that
-- refuse no job. Returns the size of the fullest page.
--
--   $1 age in seconds   $2 page
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

-- Flow: waits, edges, links, signals.

-- name: insert_links
-- Write the names by which a job knows other jobs; a name that exists leads to the new target.
--   ?1 [{job, name, target, place}]   ?2 now
INSERT INTO windlass_links (job, name, target, place, at)
SELECT value ->> 'job', value ->> 'name', value ->> 'target', value ->> 'place', ?2 FROM json_each(?1) WHERE true
    ON CONFLICT (job, name) DO UPDATE SET target = excluded.target, place = excluded.place

-- name: links
-- The jobs that a job knows by name, with their states now.
--   :id   :page; -1: all of them
SELECT links.name, links.target, coalesce(jobs.status, history.status), coalesce(jobs.output, history.output),
       coalesce(jobs.error, history.error)
  FROM windlass_links AS links
  LEFT JOIN windlass_jobs AS jobs ON jobs.id = links.target
  LEFT JOIN windlass_history AS history ON history.id = links.target
 WHERE links.job = :id
 ORDER BY links.place, links.name
 LIMIT :page

-- name: children
-- The jobs of the same tenant that these jobs created and that have not ended. Running children are asked to stop; the
-- others are returned.
--   ?1 [{job, tenant}] of the parents   ?2 now
UPDATE windlass_jobs SET cancel_requested = 1, updated_at = ?2
 WHERE (parent, tenant) IN (SELECT value ->> 'job', value ->> 'tenant' FROM json_each(?1)) AND status = 'running'
-- then
SELECT id FROM windlass_jobs
 WHERE (parent, tenant) IN (SELECT value ->> 'job', value ->> 'tenant' FROM json_each(?1))
   AND status IN ('queued', 'failed', 'waiting')

-- name: ended_jobs
-- Jobs that just ended and are marked `followed`: their end changes other rows too.
--   ?1 [id]
SELECT id, status, tenant, trace, input, output, error, follow_ups
  FROM windlass_jobs
 WHERE id IN (SELECT value FROM json_each(?1)) AND followed AND status = 'dead'
UNION ALL
SELECT id, status, tenant, trace, input, output, error, follow_ups
  FROM windlass_history
 WHERE id IN (SELECT value FROM json_each(?1)) AND followed

-- name: ended_states
-- The states of jobs that are in the history. A job with a key that is held for ever is known to have succeeded
-- although its history is deleted, unless the key is also held by jobs that are dead or cancelled.
--   ?1 [id]
SELECT id, status FROM windlass_history WHERE id IN (SELECT value FROM json_each(?1))
UNION
SELECT job, 'succeeded' FROM windlass_keys
 WHERE job IN (SELECT value FROM json_each(?1)) AND forever AND NOT free AND ended_at IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM json_each(states) WHERE value IN ('dead', 'cancelled'))

-- name: mark_followed
-- Mark jobs that another job waits for: a finish of such a job also writes what its end causes.
--   ?1 [id]
UPDATE windlass_jobs SET followed = 1 WHERE id IN (SELECT value FROM json_each(?1))
RETURNING id, status

-- name: lock_wait_graph
-- Nothing to lock: SQLite has one writer at a time.
SELECT 1 WHERE false

-- name: cycles
-- Jobs that would wait, over any number of other waiting jobs, for themselves.
--   ?1 [{job, awaited}]
WITH RECURSIVE chain AS (
    SELECT value ->> 'job' AS job, value ->> 'awaited' AS awaited FROM json_each(?1)
    UNION
    SELECT chain.job, edges.awaited
      FROM chain
      JOIN windlass_edges AS edges ON edges.waiter = chain.awaited AND NOT edges.done
      JOIN windlass_waits AS waits ON waits.job = edges.waiter AND waits.fence = edges.fence
)
SELECT DISTINCT job FROM chain WHERE awaited = job

-- name: insert_edges
-- Write which job waits for which.
--   ?1 [{awaited, waiter, fence, policy, done, ok}]
INSERT INTO windlass_edges (awaited, waiter, fence, policy, done, ok)
SELECT value ->> 'awaited', value ->> 'waiter', value ->> 'fence', value ->> 'policy', value ->> 'done', value ->> 'ok'
  FROM json_each(?1)
 WHERE true
    ON CONFLICT (awaited, waiter) DO UPDATE
   SET fence = excluded.fence, policy = excluded.policy, done = excluded.done, ok = excluded.ok

-- name: begin_waits
-- Write the waits of jobs that are in the state `waiting`; returns the jobs that have got their signal already.
--   ?1 [{job, fence, need, pending, succeeded, bad, total, batch, signal, delay}]   ?2 now
INSERT INTO windlass_waits (job, fence, need, pending, succeeded, bad, total, batch, signal, wake_at)
SELECT value ->> 'job', value ->> 'fence', value ->> 'need', value ->> 'pending', value ->> 'succeeded',
       value ->> 'bad', value ->> 'total', value ->> 'batch',
       value ->> 'signal', ?2 + CAST(round((value ->> 'delay') * 1000000) AS INTEGER)
  FROM json_each(?1)
 WHERE true
    ON CONFLICT (job) DO UPDATE
   SET fence = excluded.fence, need = excluded.need, pending = excluded.pending, succeeded = excluded.succeeded,
       bad = excluded.bad, total = excluded.total, batch = excluded.batch,
       signal = excluded.signal, wake_at = excluded.wake_at
-- then
SELECT sent.job
  FROM json_each(?1) AS new
  JOIN windlass_signals AS sent ON sent.job = new.value ->> 'job' AND sent.name = new.value ->> 'signal'

-- name: mark_arrivals
-- Awaited jobs ended: mark their edges, each once. The last column returned is whether the awaited job succeeded.
--   ?1 [{awaited, ok}]
UPDATE windlass_edges
   SET done = 1, ok = ended.ok OR windlass_edges.policy = 'continue'
  FROM (SELECT value ->> 'awaited' AS awaited, value ->> 'ok' AS ok FROM json_each(?1)) AS ended
 WHERE windlass_edges.awaited = ended.awaited AND NOT windlass_edges.done
RETURNING waiter, fence, awaited, policy, ok AND (policy <> 'continue' OR EXISTS (
    SELECT 1 FROM json_each(?1) WHERE value ->> 'awaited' = windlass_edges.awaited AND value ->> 'ok'))

-- name: count_arrivals
-- Count arrivals for their waiters. A wait with another fence is a later wait of the same job, and stays as it is.
--   ?1 [{job, fence, arrived, succeeded, bad}]
UPDATE windlass_waits
   SET pending = windlass_waits.pending - arrived.arrived, succeeded = windlass_waits.succeeded + arrived.succeeded,
       bad = windlass_waits.bad + arrived.bad
  FROM (SELECT value ->> 'job' AS job, value ->> 'fence' AS fence, value ->> 'arrived' AS arrived,
               value ->> 'succeeded' AS succeeded, value ->> 'bad' AS bad
          FROM json_each(?1)) AS arrived
 WHERE windlass_waits.job = arrived.job AND windlass_waits.fence = arrived.fence
RETURNING job, fence, need, pending, succeeded, batch

-- name: count_batch
-- Copy the counters of a batch from its wait to the job that waits.
--   ?1 [id] of the waiting jobs   ?2 now
UPDATE windlass_jobs
   SET total = waits.total, processed = waits.total - waits.pending - waits.bad, failed = waits.bad, updated_at = ?2
  FROM (SELECT job, total, pending, bad FROM windlass_waits
         WHERE batch AND job IN (SELECT value FROM json_each(?1))) AS waits
 WHERE windlass_jobs.id = waits.job AND windlass_jobs.status = 'waiting'

-- name: fatal_edges
-- Edges that decide a wait whatever the other awaited jobs do: the awaited job ended badly, and the policy is fail or
-- skip.
--   ?1 [id] of the waiting jobs
SELECT edges.waiter, edges.policy, edges.awaited
  FROM windlass_edges AS edges
  JOIN windlass_waits AS waits ON waits.job = edges.waiter AND waits.fence = edges.fence
 WHERE edges.waiter IN (SELECT value FROM json_each(?1)) AND edges.done AND NOT edges.ok
   AND edges.policy IN ('fail', 'skip')

-- name: wake_waiting
-- Make waiting jobs claimable: what they waited for has happened, or cannot happen any more.
--   ?1 [id]   ?2 now
UPDATE windlass_jobs SET status = 'queued', run_at = ?2, updated_at = ?2, reason = NULL
 WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'waiting'
RETURNING id, queue

-- name: due_waits
-- Waiting jobs at the end of their timers. A wait that needs nothing more is over already: SQLite has one writer at a
-- time, so that an arrival never skips a locked row here.
--   ?1 [page]   ?2 now
SELECT job FROM windlass_waits WHERE wake_at <= ?2 ORDER BY wake_at LIMIT (SELECT value FROM json_each(?1))

-- name: bury_waiting
-- Waiting jobs are dead, because an awaited job failed.
--   ?1 [{id, reason, fingerprint}]   ?2 now
INSERT INTO windlass_audit (at, action, job, type, queue, tenant, reason)
SELECT ?2, 'JOB_DEAD', jobs.id, jobs.type, jobs.queue, jobs.tenant, lost.value ->> 'reason'
  FROM json_each(?1) AS lost
  JOIN windlass_jobs AS jobs ON jobs.id = lost.value ->> 'id' AND jobs.status = 'waiting'
-- then
INSERT INTO windlass_figures (at, worker, queue, phase, dead, runs, waits)
SELECT ?2 - ?2 % 10000000, lower(hex(randomblob(16))), queue, phase, 1, '[]', '[]'
  FROM windlass_jobs
 WHERE id IN (SELECT value ->> 'id' FROM json_each(?1)) AND status = 'waiting'
-- then
UPDATE windlass_jobs
   SET status = 'dead', reason = lost.reason, finished_at = ?2, updated_at = ?2,
       error = json_object('type', 'Abandoned', 'message', lost.reason, 'attempt', attempt, 'attemptedAt',
                           strftime('%Y-%m-%dT%H:%M:%fZ', ?2 / 1000000.0, 'unixepoch')),
       fingerprint = lost.fingerprint, error_at = ?2, error_worker = NULL
  FROM (SELECT value ->> 'id' AS id, value ->> 'reason' AS reason, value ->> 'fingerprint' AS fingerprint
          FROM json_each(?1)) AS lost
 WHERE windlass_jobs.id = lost.id AND windlass_jobs.status = 'waiting'
RETURNING id

-- name: reopen_edges
-- A job becomes claimable again after it ended: each job that still waits for it waits for its end again.
--   ?1 [id]
SELECT waiter, fence, ok FROM windlass_edges WHERE awaited IN (SELECT value FROM json_each(?1)) AND done
-- then
UPDATE windlass_edges SET done = 0, ok = 0 WHERE awaited IN (SELECT value FROM json_each(?1)) AND done

-- name: delete_edges
-- Jobs ended: delete the edges to the jobs that they waited for.
--   ?1 [id]
DELETE FROM windlass_edges WHERE waiter IN (SELECT value FROM json_each(?1))

-- name: delete_waits
-- Delete the waits of jobs that no longer wait.
--   ?1 [id]
DELETE FROM windlass_waits WHERE job IN (SELECT value FROM json_each(?1))

-- name: waits_of_jobs
-- What jobs wait for.
--   :ids a JSON array
SELECT job, need, pending, succeeded, signal, wake_at
  FROM windlass_waits
 WHERE job IN (SELECT value FROM json_each(:ids))

-- name: awaits_signal
-- Whether a job waits for this signal.
--   ?1 [{job, name}]
SELECT waits.job
  FROM json_each(?1) AS sent
  JOIN windlass_waits AS waits ON waits.job = sent.value ->> 'job' AND waits.signal = sent.value ->> 'name'

-- name: insert_signal
-- Store a signal; the first one of a name stays.
--   ?1 [{job, name, payload}]   ?2 now
INSERT INTO windlass_signals (job, name, payload, at)
SELECT value ->> 'job', value ->> 'name', value -> 'payload', ?2 FROM json_each(?1) WHERE true
    ON CONFLICT (job, name) DO NOTHING
RETURNING job

-- name: prune_flow
-- Delete rows that outlived their job, a page of each kind: links, steps and signals of jobs that no longer exist, and
-- keys that refuse no job any more.
--   ?1 history in microseconds   ?2 now   ?3 page
DELETE FROM windlass_links
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_links AS old
         WHERE old.at < ?2 - ?1
           AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = old.job)
           AND NOT EXISTS (SELECT 1 FROM windlass_history AS history WHERE history.id = old.job)
         LIMIT ?3)
-- then
DELETE FROM windlass_steps
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_steps AS old
         WHERE old.at < ?2 - ?1
           AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = old.job)
           AND NOT EXISTS (SELECT 1 FROM windlass_history AS history WHERE history.id = old.job)
         LIMIT ?3)
-- then
DELETE FROM windlass_signals
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_signals AS old
         WHERE old.at < ?2 - ?1
           AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = old.job)
           AND NOT EXISTS (SELECT 1 FROM windlass_history AS history WHERE history.id = old.job)
         LIMIT ?3)
-- then
DELETE FROM windlass_keys
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_keys AS old
         WHERE old.until <= ?2
            OR (old.ended_at < ?2 - ?1 AND (old.free OR (NOT old.forever AND old.until IS NULL))
                AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = old.job))
         LIMIT ?3)

-- Doctor: what `windlass doctor` reads.

-- name: doctor_rows
-- Claimable jobs that no claim takes because a program could not read them (see `due_jobs`), with the id of one; and
-- how many microseconds the newest time in the store is ahead of the clock.
--   :now
SELECT (SELECT count(*) FROM windlass_jobs AS jobs WHERE {claimable_status} AND NOT ({readable})),
       (SELECT min(id) FROM windlass_jobs AS jobs WHERE {claimable_status} AND NOT ({readable})),
       (SELECT max(max(coalesce(max(created_at), 0), coalesce(max(updated_at), 0)),
                   (SELECT seen_at FROM windlass_installation))
          FROM windlass_jobs
         WHERE created_at < :now + 315360000000000 AND updated_at < :now + 315360000000000) - :now

-- name: doctor_types
-- Due jobs that no live worker would claim, by type and queue. They are grouped first, so that workers are read once
-- per group.
--   :now
WITH due AS (
    SELECT type, queue, count(*) AS jobs, min(run_at) AS oldest
      FROM windlass_jobs
     WHERE {claimable_status} AND run_at <= :now
     GROUP BY type, queue
)
SELECT type, queue, jobs, (:now - oldest) / 1000000.0 AS lag
  FROM due
 WHERE NOT EXISTS (
        SELECT 1 FROM windlass_workers AS workers
         WHERE NOT workers.dead AND workers.alive_until > :now
           AND due.type IN (SELECT value FROM json_each(workers.types))
           AND (workers.queues IS NULL OR due.queue IN (SELECT value FROM json_each(workers.queues))))
 ORDER BY jobs DESC, type, queue
 LIMIT 20

-- name: doctor_alive
-- How many workers are alive.
--   :now
SELECT count(*) FROM windlass_workers WHERE NOT dead AND alive_until > :now

-- name: doctor_holders
-- Dead or silent workers, and ids that have no worker's row, with the number of jobs that run under them; the longest
-- silent first.
--   :now
SELECT workers.name, count(jobs.id) AS jobs, max(0, :now - workers.alive_until) / 1000000.0 AS silent
  FROM windlass_workers AS workers
  LEFT JOIN windlass_jobs AS jobs ON jobs.worker = workers.id AND jobs.status = 'running'
 WHERE workers.dead OR workers.alive_until <= :now
 GROUP BY workers.id
UNION ALL
SELECT NULL, count(*), (:now - max(jobs.updated_at)) / 1000000.0
  FROM windlass_jobs AS jobs
 WHERE jobs.status = 'running' AND NOT EXISTS (SELECT 1 FROM windlass_workers AS workers WHERE workers.id = jobs.worker)
 GROUP BY jobs.worker
 ORDER BY silent DESC

-- name: doctor_joins
-- How many jobs wait, and which of them nothing would ever wake: each kind with its count and the id of one job. Every
-- write to a wait commits with what it depends on, so that one snapshot must never show any of these. Only `met` may be
-- seen for a moment: an arrival skips a waiter with a locked row, and the next check of the timers wakes it.
--   :now   :slack microseconds for which a timer may be late
WITH waiting AS MATERIALIZED (
    SELECT jobs.id, waits.job, waits.need, waits.pending, waits.succeeded, waits.signal, waits.wake_at,
           (SELECT count(*) FROM windlass_edges AS edges
             WHERE edges.waiter = jobs.id AND edges.fence = waits.fence) AS edges,
           (SELECT count(*) FROM windlass_edges AS edges
             WHERE edges.waiter = jobs.id AND edges.fence = waits.fence AND NOT edges.done) AS open,
           (SELECT count(*)
              FROM windlass_edges AS edges
              LEFT JOIN windlass_jobs AS awaited
                ON awaited.id = edges.awaited AND awaited.status NOT IN ('succeeded', 'dead', 'cancelled')
             WHERE edges.waiter = jobs.id AND edges.fence = waits.fence AND NOT edges.done
               AND awaited.id IS NULL) AS ended
      FROM windlass_jobs AS jobs
      LEFT JOIN windlass_waits AS waits ON waits.job = jobs.id
     WHERE jobs.status = 'waiting'
),
found (kind, id) AS (
    SELECT 'waiting', id FROM waiting
    UNION ALL
    SELECT 'nothing', id FROM waiting
     WHERE job IS NULL OR (need = 0 AND edges = 0 AND signal IS NULL AND wake_at IS NULL)
    UNION ALL
    SELECT 'met', id FROM waiting WHERE need > 0 AND (succeeded >= need OR succeeded + pending < need)
    UNION ALL
    SELECT 'ended', id FROM waiting WHERE ended > 0
    UNION ALL
    SELECT 'miscounted', id FROM waiting WHERE pending <> open
    UNION ALL
    SELECT 'signal', id FROM waiting WHERE EXISTS (
        SELECT 1 FROM windlass_signals AS signals WHERE signals.job = waiting.job AND signals.name = waiting.signal)
    UNION ALL
    SELECT 'late', id FROM waiting WHERE wake_at < :now - :slack
)
SELECT kind, count(*), min(id) FROM found GROUP BY kind

-- name: doctor_slots
-- Limits with another number of used slots than of running jobs. A claim and everything that ends an attempt write both
-- in one transaction, so that one snapshot must never show any of these.
WITH held AS MATERIALIZED (
    SELECT taken.value AS key, count(*) AS jobs
      FROM windlass_jobs AS jobs, json_each(jobs.limits) AS taken
     WHERE jobs.status = 'running' AND jobs.limits IS NOT NULL
     GROUP BY taken.value
)
SELECT limit_counters.key, limit_counters.used, coalesce(held.jobs, 0)
  FROM windlass_limit_counters AS limit_counters
  LEFT JOIN held ON held.key = limit_counters.key
 WHERE limit_counters.most IS NOT NULL AND limit_counters.used <> coalesce(held.jobs, 0)
 ORDER BY limit_counters.key

-- name: doctor_parked
-- Keys that have room although jobs are parked on them that a live worker could claim now: how many, and which is next.
--   :now
WITH closed AS MATERIALIZED (
    {closed}
), known AS MATERIALIZED (
    SELECT DISTINCT types.value AS type FROM windlass_workers AS workers, json_each(workers.types) AS types
     WHERE NOT workers.dead
), parked AS MATERIALIZED (
    SELECT jobs.id, jobs.parked_on,
           row_number() OVER (PARTITION BY jobs.parked_on
                              ORDER BY jobs.phase_rank, jobs.priority DESC, jobs.run_at, jobs.id) AS place
      FROM windlass_jobs AS jobs
      LEFT JOIN windlass_limit_counters AS limit_counters ON limit_counters.key = jobs.parked_on
     WHERE jobs.parked_on IS NOT NULL
       AND (limit_counters.key IS NULL OR room(most, used, period, burst, next_at, held_until, :now) > 0)
       AND (jobs.type IN (SELECT type FROM known) OR NOT EXISTS (SELECT 1 FROM known))
       AND NOT EXISTS (SELECT 1 FROM closed
                        WHERE kind = 'all' OR (kind = 'queue' AND name = jobs.queue)
                           OR (kind = 'type' AND name = jobs.type) OR (kind = 'tenant' AND name = jobs.tenant))
)
SELECT parked_on, count(*), max(id) FILTER (WHERE place = 1)
  FROM parked
 GROUP BY parked_on
 ORDER BY parked_on

-- name: doctor_gates
-- Closed gates, those that are closed longest first.
--   :now
SELECT kind, name, state, reason, actor, max(0, :now - since) / 1000000.0 AS age
  FROM windlass_gates
 WHERE state <> 'open'
 ORDER BY since, kind, name

-- name: doctor_budgets
-- Budgets that are spent in their current window.
--   :now
SELECT kind, name, cents, iif(until > :now, spent, 0) AS spent,
       (iif(until > :now, until, window_end(seconds, :now)) - :now) / 1000000.0 AS opens
  FROM windlass_budgets
 WHERE {spent_budget}
 ORDER BY kind, name

-- name: doctor_schedules
-- Schedules with an overdue tick.
--   :now   :slack microseconds for which a tick may be late
SELECT name, (:now - next_at) / 1000000.0 AS late
  FROM windlass_schedules
 WHERE NOT paused AND next_at < :now - :slack
 ORDER BY next_at, name

-- name: doctor_forgotten
-- Live workers that report fewer jobs than run under their id. Only jobs count that were claimed well before the
-- worker's last report: it held all of them at that time, whatever has ended since.
--   :answer microseconds that a claim's answer may take   :now
SELECT workers.name, workers.held, count(*)
  FROM windlass_workers AS workers
  JOIN windlass_jobs AS jobs ON jobs.worker = workers.id AND jobs.status = 'running'
 WHERE NOT workers.dead AND workers.alive_until > :now
   AND jobs.claimed_at < workers.held_at - :answer
 GROUP BY workers.id
HAVING count(*) > workers.held
 ORDER BY workers.name

-- Doctor: what `windlass doctor` reads.

-- name: doctor_rows
-- Claimable jobs that no claim takes (due.sql says which), with the id of one; and how many seconds the newest time in
-- the store lies ahead of the clock.   :now
SELECT (SELECT count(*) FROM windlass_jobs AS jobs WHERE status IN ('queued', 'failed')
           AND NOT (fence < 9223372036854775806 AND attempt < 2147483646 AND run_at >= -62135596800000000
                    AND created_at BETWEEN -62135596800000000 AND 253402300799000000
                    AND coalesce(finished_at, 0) BETWEEN -62135596800000000 AND 253402300799000000)),
       (SELECT min(id) FROM windlass_jobs AS jobs WHERE status IN ('queued', 'failed')
           AND NOT (fence < 9223372036854775806 AND attempt < 2147483646 AND run_at >= -62135596800000000
                    AND created_at BETWEEN -62135596800000000 AND 253402300799000000
                    AND coalesce(finished_at, 0) BETWEEN -62135596800000000 AND 253402300799000000)),
       (SELECT max(max(coalesce(max(created_at), 0), coalesce(max(updated_at), 0)),
                   (SELECT seen_at FROM windlass_installation))
          FROM windlass_jobs
         WHERE created_at < :now + 315360000000000 AND updated_at < :now + 315360000000000) - :now

-- name: doctor_types
-- Due jobs that no live worker would claim, by type and queue: grouped first, so that workers are asked once per group.
--   :now
WITH due AS (
    SELECT type, queue, count(*) AS jobs, min(run_at) AS oldest
      FROM windlass_jobs
     WHERE status IN ('queued', 'failed') AND run_at <= :now
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
-- How many workers are alive.   :now
SELECT count(*) FROM windlass_workers WHERE NOT dead AND alive_until > :now

-- name: doctor_holders
-- Workers that are gone, with the jobs they still hold, longest first: dead or silent ones, and ids that no row explains.
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
-- How many jobs wait, and which of them nothing would ever wake: each kind with its count and one of its jobs. Every
-- write that touches a wait commits with what it depends on, so that one snapshot must never show any of these; only
-- `met` may be seen for a moment, since an arrival leaves a waiter that somebody holds to the next look at the timers.
--   :now  :slack, microseconds a timer may be late
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
-- Limits whose slots in use are not those of running jobs. A claim and whatever ends an attempt write both in one
-- transaction, so that one snapshot must never show any of these.
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
-- Keys that have room while jobs are parked on them which some worker could take now: how many, and which comes next.
--   :now
WITH closed AS MATERIALIZED (
    SELECT kind, name FROM windlass_gates WHERE state <> 'open'
    UNION ALL
    SELECT kind, name FROM windlass_budgets WHERE iif(until > :now, spent, 0) >= cents
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
-- Gates that are closed, the longest first.   :now
SELECT kind, name, state, reason, actor, max(0, :now - since) / 1000000.0 AS age
  FROM windlass_gates
 WHERE state <> 'open'
 ORDER BY since, kind, name

-- name: doctor_budgets
-- Budgets that are spent in the window that is now.   :now
SELECT kind, name, cents, iif(until > :now, spent, 0) AS spent,
       (iif(until > :now, until, window_end(seconds, :now)) - :now) / 1000000.0 AS opens
  FROM windlass_budgets
 WHERE iif(until > :now, spent, 0) >= cents
 ORDER BY kind, name

-- name: doctor_schedules
-- Schedules whose next tick should have fired long ago.   :now   :slack microseconds that are not long
SELECT name, (:now - next_at) / 1000000.0 AS late
  FROM windlass_schedules
 WHERE NOT paused AND next_at < :now - :slack
 ORDER BY next_at, name

-- name: doctor_forgotten
-- Live workers that name fewer jobs than name them. Counted are jobs that were claimed well before the worker last told how
-- many it holds: all of them were held then, whatever has ended since.   :answer a claim's answer may take so long   :now
SELECT workers.name, workers.held, count(*)
  FROM windlass_workers AS workers
  JOIN windlass_jobs AS jobs ON jobs.worker = workers.id AND jobs.status = 'running'
 WHERE NOT workers.dead AND workers.alive_until > :now
   AND jobs.claimed_at < workers.held_at - :answer
 GROUP BY workers.id
HAVING count(*) > workers.held
 ORDER BY workers.name

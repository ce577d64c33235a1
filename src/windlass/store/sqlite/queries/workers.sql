-- Workers: registration, beats, sweep, rescue, leadership.

-- name: register
-- A new incarnation of a worker.
INSERT INTO windlass_workers (id, name, started_at, alive_until, concurrency, queues, types, isolates)
VALUES (:id, :name, :now, :now + :lease, :concurrency, :queues, :types, :isolates)

-- name: deregister
-- Goodbye, unless a job still names this worker: its row is what the sweeper finds that job by.
DELETE FROM windlass_workers
 WHERE id = :id AND NOT EXISTS (SELECT 1 FROM windlass_jobs WHERE worker = :id AND status = 'running')

-- name: beat
-- Alive for another lease, and holding so many jobs; a row that is dead or gone stays so.
UPDATE windlass_workers SET alive_until = :now + :lease, held = :held, held_at = :now WHERE id = :id AND NOT dead

-- name: workers
-- Every worker, with the leases it holds.
SELECT workers.id, workers.name, workers.started_at, workers.alive_until, workers.dead, workers.idle, workers.queues,
       workers.types, workers.concurrency,
       (SELECT count(*) FROM windlass_jobs AS jobs WHERE jobs.worker = workers.id AND jobs.status = 'running')
  FROM windlass_workers AS workers
 ORDER BY workers.started_at, workers.id

-- name: set_idle
-- The idle mark. Only a change is written: a write that changes nothing costs no fsync.
UPDATE windlass_workers SET idle = :idle WHERE id = :id AND NOT dead AND idle <> :idle

-- name: mark_workers_dead
-- What the clock shows is kept beside it, so that a worker which starts later notices a clock that was set back.   :now
UPDATE windlass_installation SET seen_at = :now WHERE seen_at < :now
-- then
-- Rescue, step one, committed on its own: who has been silent beyond its lease is dead from now on. A beat that comes
-- later finds the mark and changes nothing, so that nothing is ever taken from a worker that is alive.
UPDATE windlass_workers SET dead = 1, idle = 0 WHERE NOT dead AND alive_until < :now

-- name: orphans
-- A page of jobs that dead or unknown workers hold, besides some.   :page   :jobs these not
SELECT id
  FROM windlass_jobs
 WHERE status = 'running' AND id NOT IN (SELECT value FROM json_each(:jobs))
   AND worker IN (
        SELECT holder.worker
          FROM (SELECT DISTINCT worker FROM windlass_jobs WHERE status = 'running') AS holder
          LEFT JOIN windlass_workers AS workers ON workers.id = holder.worker
         WHERE workers.id IS NULL OR workers.dead)
 LIMIT :page

-- name: rescue
-- Rescue, step two: give back the jobs of workers that are dead, or that nobody knows, a page at a time, so that other
-- writers get in between. The attempt is given back; run_at stays, so that the job keeps its place.
--
-- A crash is counted against every job that may be guilty: not against one that already was a suspect on a worker that
-- runs suspects in processes of their own, for such a job cannot have killed its worker. All deaths count as rescues.
--
--   :max_crashes   :max_rescues   :page   :now   :jobs, :only these (1), or all but these (0)
--   :crash_counts whether a job keeps the attempt that was interrupted, and is dead when it was the last one
--   :blames whether a crash is counted at all: after an outage silence says nothing about jobs
UPDATE windlass_jobs
   SET status = iif(orphan.reason IS NULL, 'queued', 'dead'),
       token = NULL, worker = NULL, run_at = min(run_at, :now), attempt = max(attempt - (NOT :crash_counts), 0),
       crashes = orphan.crashes,
       rescues = windlass_jobs.rescues + 1,
       reason = orphan.reason,
       finished_at = iif(orphan.reason IS NULL, NULL, :now),
       updated_at = :now,
       error = crash(attempt, :now),
       attempts = remember(attempts, json_object(
           'attempt', attempt, 'fence', fence, 'worker', worker, 'started_at', rfc3339(started_at),
           'finished_at', rfc3339(:now), 'outcome', 'crashed', 'error', json(crash(attempt, :now))))
  FROM (
        SELECT held.id, held.crashes,
               CASE WHEN held.crashes >= :max_crashes OR held.rescues >= :max_rescues THEN 'crashed'
                    WHEN :crash_counts AND held.spent THEN 'exhausted' END AS reason
          FROM (
                SELECT jobs.id, jobs.rescues + 1 AS rescues, jobs.attempt >= jobs.max_attempts AS spent,
                       jobs.crashes + (:blames AND (jobs.crashes = 0 OR NOT coalesce(workers.isolates, 0))) AS crashes
                  FROM windlass_jobs AS jobs
                  LEFT JOIN windlass_workers AS workers ON workers.id = jobs.worker
                 WHERE jobs.status = 'running'
                   AND (jobs.id IN (SELECT value FROM json_each(:jobs))) = :only
                   AND jobs.worker IN (
                        SELECT holder.worker
                          FROM (SELECT DISTINCT worker FROM windlass_jobs WHERE status = 'running') AS holder
                          LEFT JOIN windlass_workers AS workers ON workers.id = holder.worker
                         WHERE workers.id IS NULL OR workers.dead)
                 LIMIT :page) AS held) AS orphan
 WHERE windlass_jobs.id = orphan.id
RETURNING id, status, limits, reason

-- name: rescue_bare
-- Give back one job of a dead worker with the least that can be written: rescue.sql was refused for it. What is remembered
-- of its attempts stays as it is, and nothing follows its end.
--
--   :id   :now   :max_crashes, :crash_counts, :blames as in rescue.sql
UPDATE windlass_jobs
   SET status = iif(verdict.reason IS NULL, 'queued', 'dead'),
       token = NULL, worker = NULL, attempt = max(attempt - (NOT :crash_counts), 0), crashes = crashes + :blames,
       rescues = rescues + 1,
       reason = verdict.reason,
       finished_at = iif(verdict.reason IS NULL, NULL, :now),
       updated_at = :now
  FROM (
        SELECT CASE WHEN crashes + :blames >= :max_crashes THEN 'crashed'
                    WHEN :crash_counts AND attempt >= max_attempts THEN 'exhausted' END AS reason
          FROM windlass_jobs
         WHERE id = :id) AS verdict
 WHERE id = :id AND status = 'running'
   AND worker IN (
        SELECT holder.worker
          FROM (SELECT DISTINCT worker FROM windlass_jobs WHERE status = 'running') AS holder
          LEFT JOIN windlass_workers AS workers ON workers.id = holder.worker
         WHERE workers.id IS NULL OR workers.dead)
RETURNING status, limits

-- name: forgotten_cancels
-- Jobs that somebody asked to cancel and whose worker died before it could heed: nobody may start them again.
--
--   :sources the states that are claimable   :page
SELECT id FROM windlass_jobs
 WHERE cancel_requested AND status IN (SELECT value FROM json_each(:sources))
 LIMIT :page

-- name: cancel_requests
-- Running jobs of one worker that somebody asked to cancel.
SELECT id FROM windlass_jobs WHERE worker = :worker AND cancel_requested AND status = 'running'

-- name: prune_workers
-- A dead worker's row goes when no job names it any more, never before: its row is what marks its jobs as orphans.
--
--   :now   :kept for how many microseconds the row of a dead worker is kept
DELETE FROM windlass_workers
 WHERE dead AND alive_until < :now - :kept
   AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs
                    WHERE jobs.worker = windlass_workers.id AND jobs.status = 'running')

-- name: lead
-- Take or keep a leadership: mine already, or nobody's any more. The term grows with every change of hands.
INSERT INTO windlass_leaders (name, holder, until)
VALUES (:name, :worker, :now + :lease)
ON CONFLICT (name) DO UPDATE
   SET until = excluded.until, term = term + (holder <> excluded.holder), holder = excluded.holder
 WHERE holder = excluded.holder OR until < :now

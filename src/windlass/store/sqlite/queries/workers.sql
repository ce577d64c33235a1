-- Workers: registration, beats, sweep, rescue, leadership.

-- name: register
-- Write the row of a worker that starts.
--   :id   :name   :lease in microseconds   :concurrency   :queues, :types JSON arrays   :isolates   :version   :windlass
--   :schema_number that its program knows   :now
INSERT INTO windlass_workers (
       id, name, started_at, alive_until, concurrency, queues, types, isolates, version, windlass, schema_number)
VALUES (:id, :name, :now, :now + :lease, :concurrency, :queues, :types, :isolates, :version, :windlass, :schema_number)

-- name: deregister
-- Delete a worker's row, unless a job still runs under its id: a sweep finds that job by the row.
--   :id
DELETE FROM windlass_workers
 WHERE id = :id AND NOT EXISTS (SELECT 1 FROM windlass_jobs WHERE worker = :id AND status = 'running')

-- name: beat
-- Renew a worker's lease, and record how many jobs it reports to hold and what its processors do. A row that is dead
-- stays dead.
--   :id   :lease in microseconds   :held   :pools JSON; null: unknown   :now
UPDATE windlass_workers SET alive_until = :now + :lease, held = :held, held_at = :now, pools = :pools
 WHERE id = :id AND NOT dead

-- name: workers
-- Every worker, with the number of jobs that run under its id.
--   :processors whether to read the reports of processors
SELECT workers.id, workers.name, workers.started_at, workers.alive_until, workers.dead, workers.idle, workers.queues,
       workers.types, workers.concurrency,
       (SELECT count(*) FROM windlass_jobs AS jobs WHERE jobs.worker = workers.id AND jobs.status = 'running'),
       workers.version, workers.windlass, workers.held_at, iif(:processors, workers.pools, NULL)
  FROM windlass_workers AS workers
 ORDER BY workers.started_at, workers.id

-- name: set_idle
-- Set the idle mark. Only a change is written: a write that changes nothing costs no fsync.
--   :id   :idle
UPDATE windlass_workers SET idle = :idle WHERE id = :id AND NOT dead AND idle <> :idle

-- name: mark_workers_dead
-- The time that the clock shows is stored, so that a worker which starts later notices a clock that was set back.
--   :now
UPDATE windlass_installation SET seen_at = :now WHERE seen_at < :now
-- then
-- Rescue, step one, in a commit of its own: a worker that is silent beyond its lease is dead from now on. A later beat
-- finds the mark and changes nothing, so that no job is ever taken from a worker that is alive.
UPDATE windlass_workers SET dead = 1, idle = 0 WHERE NOT dead AND alive_until < :now

-- name: orphans
-- One page of the jobs that run under dead workers, or under ids that have no worker's row.
--   :page   :jobs a JSON array of jobs to leave out
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
-- Rescue, step two: the jobs of dead workers, and of ids that have no worker's row, become claimable, a page at a time, so
-- that other writers get a turn in between. The attempt is not counted; run_at stays, so that the job keeps its place.
--
-- A crash is counted for every job that may have killed its worker. A job that was a suspect already, on a worker that
-- runs suspects in processes of their own, cannot have killed it: its crash is not counted. All deaths count as
-- rescues.
--
--   :max_crashes   :max_rescues   :page   :now
--   :jobs, :only a JSON array of jobs: these (1), or all but these (0)
--   :crash_counts whether the interrupted attempt counts; a job is dead when it was the last one
--   :blames whether a crash is counted at all: after an outage workers are silent for another reason than their jobs
--   :fingerprint of the error
UPDATE windlass_jobs
   SET status = iif(orphan.reason IS NULL, 'queued', 'dead'),
       token = NULL, worker = NULL, run_at = min(run_at, :now), attempt = max(attempt - (NOT :crash_counts), 0),
       crashes = orphan.crashes,
       rescues = windlass_jobs.rescues + 1,
       reason = orphan.reason,
       finished_at = iif(orphan.reason IS NULL, NULL, :now),
       updated_at = :now,
       error = crash(attempt, :now), fingerprint = :fingerprint, error_at = :now, error_worker = worker,
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
-- Give back one job of a dead worker with the smallest possible write, because `rescue` was refused for it. Its
-- attempts and its error stay as they are, and nothing follows its end.
--   :id   :now   :max_crashes, :crash_counts, :blames as in `rescue`
UPDATE windlass_jobs
   SET status = iif(decided.reason IS NULL, 'queued', 'dead'),
       token = NULL, worker = NULL, attempt = max(attempt - (NOT :crash_counts), 0), crashes = crashes + :blames,
       rescues = rescues + 1,
       reason = decided.reason,
       finished_at = iif(decided.reason IS NULL, NULL, :now),
       updated_at = :now
  FROM (
        SELECT CASE WHEN crashes + :blames >= :max_crashes THEN 'crashed'
                    WHEN :crash_counts AND attempt >= max_attempts THEN 'exhausted' END AS reason
          FROM windlass_jobs
         WHERE id = :id) AS decided
 WHERE id = :id AND status = 'running'
   AND worker IN (
        SELECT holder.worker
          FROM (SELECT DISTINCT worker FROM windlass_jobs WHERE status = 'running') AS holder
          LEFT JOIN windlass_workers AS workers ON workers.id = holder.worker
         WHERE workers.id IS NULL OR workers.dead)
RETURNING status, limits

-- name: forgotten_cancels
-- Jobs for which a cancel was requested before their worker died: they must not start again.
--   :sources a JSON array of the claimable states   :page
SELECT id FROM windlass_jobs
 WHERE cancel_requested AND status IN (SELECT value FROM json_each(:sources))
 LIMIT :page

-- name: cancel_requests
-- The running jobs of one worker for which a cancel was requested.
--   :worker
SELECT id FROM windlass_jobs WHERE worker = :worker AND cancel_requested AND status = 'running'

-- name: prune_workers
-- Delete the rows of dead workers under which no job runs. A row with jobs stays: it marks them as orphans.
--   :now   :kept for how many microseconds the row of a dead worker is kept
DELETE FROM windlass_workers
 WHERE dead AND alive_until < :now - :kept
   AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs
                    WHERE jobs.worker = windlass_workers.id AND jobs.status = 'running')

-- name: lead
-- Take a leadership that has no holder any more, or keep one's own. The term grows whenever the holder changes.
--   :name   :worker   :lease in microseconds   :now
INSERT INTO windlass_leaders (name, holder, until)
VALUES (:name, :worker, :now + :lease)
ON CONFLICT (name) DO UPDATE
   SET until = excluded.until, term = term + (holder <> excluded.holder), holder = excluded.holder
 WHERE holder = excluded.holder OR until < :now

-- name: count_wakes
-- The number that each wake-up increases. A process that sees the file change reads it to see whether it was a wake-up.
SELECT wakes FROM windlass_installation

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

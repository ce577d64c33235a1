-- When the next job of one lane becomes due, for a worker that wants to sleep until then. Where that job had been
-- due when it was `written`, the clock was set back since; a time years ahead is nobody's clock.
--
--   :queue, :phase_rank, :priority, :tenant, :limited the lane   :types a JSON array   :now
SELECT jobs.run_at,
       CASE WHEN jobs.run_at <= max(jobs.created_at, jobs.updated_at)
                 AND max(jobs.created_at, jobs.updated_at) < :now + 315360000000000
            THEN max(jobs.created_at, jobs.updated_at) END AS written
  FROM windlass_jobs AS jobs
 WHERE jobs.queue = :queue AND jobs.phase_rank = :phase_rank AND jobs.priority = :priority AND jobs.tenant = :tenant
   AND (jobs.limits IS NOT NULL) = :limited AND jobs.parked_on IS NULL
   AND jobs.status IN ('queued', 'failed') AND jobs.run_at > :now
   AND jobs.type IN (SELECT value FROM json_each(:types))
   AND NOT jobs.cancel_requested
 ORDER BY jobs.run_at
 LIMIT 1

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

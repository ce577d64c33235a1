-- Errors: failures by their fingerprint.

-- name: errors
-- The newest failures of a span of time, jobs and history together, for the list of error groups.
--   ?1 the begin of the span   ?2 page   ?3 … queue and tenant, where they are given
--
-- Each table is read backwards from now in its index of failures, ?2 entries at most.
SELECT * FROM (
    SELECT id, fingerprint, status, queue, type, tenant, error_worker, error_at
      FROM windlass_jobs
     WHERE fingerprint IS NOT NULL AND error_at >= ?1{where}
     ORDER BY error_at DESC LIMIT ?2)
UNION ALL
SELECT * FROM (
    SELECT id, fingerprint, status, queue, type, tenant, error_worker, error_at
      FROM windlass_history
     WHERE fingerprint IS NOT NULL AND error_at >= ?1{where}
     ORDER BY error_at DESC LIMIT ?2)
ORDER BY error_at DESC LIMIT ?2

-- name: error_texts
-- The last errors and the attempts of jobs, from the jobs and the history. The attempts are read only of a job without
-- an error: it went on to the next phase of its pipeline.
--   :ids a JSON array
SELECT id, error, iif(error IS NULL, attempts, NULL)
  FROM windlass_jobs WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT id, error, iif(error IS NULL, attempts, NULL)
  FROM windlass_history WHERE id IN (SELECT value FROM json_each(:ids))

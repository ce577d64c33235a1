-- Errors: failures by their fingerprint.

-- name: errors
-- Read the newest failures of a span of time, jobs and history together, for the list of error groups. The documents of
-- a job are left out: a large one is stored apart from its row, and is not read.
--
--   $1 seconds back from now   $2 page   $3 … queue and tenant, where they are given
--
-- Each table is read backwards from now in its index of failures, $2 entries at most. A job fails before it ends, so
-- that no partition of the history that was complete before the span is entered.
-- `ago` is how many seconds before this read the attempt failed.
SELECT id, fingerprint, status, queue, type, tenant, error_worker, error_at,
       extract(epoch FROM windlass.now() - error_at)::float8 AS ago
  FROM (
    (SELECT id, fingerprint, status, queue, type, tenant, error_worker, error_at
       FROM windlass.jobs
      WHERE fingerprint IS NOT NULL AND error_at >= windlass.now() - make_interval(secs => $1::float8){where}
      ORDER BY error_at DESC LIMIT $2)
    UNION ALL
    (SELECT id, fingerprint, status, queue, type, tenant, error_worker, error_at
       FROM windlass.history
      WHERE fingerprint IS NOT NULL AND error_at >= windlass.now() - make_interval(secs => $1::float8){where}
        AND finished_at >= windlass.now() - make_interval(secs => $1::float8)
      ORDER BY error_at DESC LIMIT $2)) AS failure
 ORDER BY error_at DESC LIMIT $2

-- name: error_texts
-- Read the last errors and the attempts of jobs, in whichever table their rows are.
--
--   $1 ids
--
-- The attempts are read only of a job without an error: it went on to the next phase of its pipeline.
SELECT id, error::text, CASE WHEN error IS NULL THEN attempts::text END FROM windlass.jobs WHERE id = ANY ($1::uuid[])
UNION ALL
SELECT id, error::text, CASE WHEN error IS NULL THEN attempts::text END FROM windlass.history WHERE id = ANY ($1::uuid[])

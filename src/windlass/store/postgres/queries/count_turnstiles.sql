-- Count the slots of rows that were made, or turned from a rate into a limit, while jobs of their key were running.
--
-- The rows are committed and closed, so that no claim adds a job. Each running job is locked before it counts: one that
-- ends after this finds the row, counted, and gives its slot back. A key of which a job is ending just now, or is held by
-- a handler's transaction, stays closed until the next time: a claim waits for nobody.
WITH uncounted AS MATERIALIZED (
    SELECT key FROM windlass.turnstiles WHERE NOT counted ORDER BY key LIMIT 1000
), running AS MATERIALIZED (
    SELECT jobs.id, jobs.limits
      FROM windlass.jobs
     WHERE jobs.status = 'running' AND jobs.limits && ARRAY (SELECT key FROM uncounted)
), held AS MATERIALIZED (
    SELECT running.id
      FROM running
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[running.id]) AND jobs.token IS NOT NULL
     ORDER BY running.id
       FOR SHARE OF jobs SKIP LOCKED
), slots AS MATERIALIZED (
    SELECT uncounted.key, count(running.id)::int AS n
      FROM uncounted
      LEFT JOIN running ON uncounted.key = ANY (running.limits)
     GROUP BY uncounted.key
    HAVING count(running.id) = count(running.id) FILTER (WHERE running.id IN (SELECT id FROM held))
)
UPDATE windlass.turnstiles SET used = slots.n, counted = true, touched_at = windlass.now()
  FROM slots
 WHERE turnstiles.key = ANY (ARRAY[slots.key]) AND NOT turnstiles.counted

-- Count the slots of rows that were made, or turned from a rate into a limit, while jobs of their key were running.
--
-- The rows are committed and closed, so that no claim adds a job. Each running job is locked before it counts: one whose
-- end is under way is waited for, and does not count if it is gone; one that ends after this finds the row, counted, and
-- gives its slot back. Jobs first, turnstiles after them, as everywhere.
WITH uncounted AS MATERIALIZED (
    SELECT key FROM windlass.turnstiles WHERE NOT counted ORDER BY key LIMIT 1000
), running AS MATERIALIZED (
    SELECT jobs.id
      FROM windlass.jobs
     WHERE jobs.status = 'running' AND jobs.limits && ARRAY (SELECT key FROM uncounted)
), held AS MATERIALIZED (
    SELECT jobs.limits
      FROM running
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[running.id]) AND jobs.token IS NOT NULL
     ORDER BY running.id
       FOR SHARE OF jobs
), slots AS MATERIALIZED (
    SELECT uncounted.key, (SELECT count(*) FROM held WHERE uncounted.key = ANY (held.limits))::int AS n FROM uncounted
)
UPDATE windlass.turnstiles SET used = slots.n, counted = true, touched_at = windlass.now()
  FROM slots
 WHERE turnstiles.key = ANY (ARRAY[slots.key]) AND NOT turnstiles.counted

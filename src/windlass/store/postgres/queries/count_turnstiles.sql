-- Count the slots of rows that were made, or turned from a rate into a limit, while jobs of their key were running.
--
-- The rows are committed and closed, so that no claim adds a job. Each running job is locked before it counts: one whose
-- end is under way is waited for, and does not count if it is gone; one that ends after this finds the row, counted, and
-- gives its slot back. Jobs first, turnstiles after them, as everywhere.
WITH uncounted AS MATERIALIZED (
    SELECT key FROM windlass.turnstiles WHERE NOT counted ORDER BY key LIMIT 1000
), held AS MATERIALIZED (
    SELECT jobs.limits
      FROM windlass.jobs
     WHERE jobs.status = 'running' AND jobs.limits && ARRAY (SELECT key FROM uncounted)
     ORDER BY jobs.id
       FOR SHARE
), slots AS MATERIALIZED (
    SELECT uncounted.key, (SELECT count(*) FROM held WHERE uncounted.key = ANY (held.limits))::int AS n FROM uncounted
)
UPDATE windlass.turnstiles SET used = slots.n, counted = true, touched_at = windlass.now()
  FROM slots
 WHERE turnstiles.key = slots.key AND NOT turnstiles.counted

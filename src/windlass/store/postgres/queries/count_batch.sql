-- A batch's counters, as its wait has them now, on the job that waits. A row that somebody holds is skipped: the next
-- arrival, or the wake-up, says it all again.   $1 [id]
WITH held AS MATERIALIZED (
    SELECT jobs.id, waits.total, waits.total - waits.pending - waits.bad AS processed, waits.bad
      FROM windlass.jobs
      JOIN windlass.waits ON waits.job = ANY (ARRAY[jobs.id]) AND waits.batch
     WHERE jobs.id = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
       AND jobs.status = 'waiting'
     ORDER BY jobs.id
       FOR UPDATE OF jobs SKIP LOCKED
)
UPDATE windlass.jobs
   SET total = held.total, processed = held.processed, failed = held.bad, updated_at = windlass.now()
  FROM held
 WHERE jobs.id = ANY (ARRAY[held.id])

-- What these jobs waited for is there, or cannot come. A row that somebody holds is skipped.   $1 [id]
WITH held AS MATERIALIZED (
    SELECT jobs.id
      FROM windlass.jobs
     WHERE jobs.id = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
       AND jobs.status = 'waiting'
     ORDER BY jobs.id
       FOR UPDATE SKIP LOCKED
)
UPDATE windlass.jobs SET status = 'queued', run_at = windlass.now(), updated_at = windlass.now(), reason = NULL
  FROM held
 WHERE jobs.id = ANY (ARRAY[held.id])
RETURNING jobs.id, jobs.queue

-- Somebody waits for these jobs: their end changes more than themselves. Locks in id order.   $1 [id]
WITH held AS MATERIALIZED (
    SELECT jobs.id
      FROM windlass.jobs
     WHERE jobs.id = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
     ORDER BY jobs.id
       FOR UPDATE
)
UPDATE windlass.jobs SET followed = true
  FROM held
 WHERE jobs.id = ANY (ARRAY[held.id])
RETURNING jobs.id, jobs.status

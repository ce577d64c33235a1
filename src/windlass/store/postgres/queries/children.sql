-- The jobs that these created and that have not ended. Those that run are asked to stop; the others are the answer.
--   $1 [id]
WITH child AS MATERIALIZED (
    SELECT jobs.id, jobs.status
      FROM windlass.jobs
     WHERE jobs.parent = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
       AND jobs.status <> 'dead'
     ORDER BY jobs.id
       FOR UPDATE
), asked AS (
    UPDATE windlass.jobs SET cancel_requested = true, updated_at = windlass.now()
      FROM child
     WHERE jobs.id = child.id AND child.status = 'running'
)
SELECT id FROM child WHERE status <> 'running'

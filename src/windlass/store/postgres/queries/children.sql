-- The jobs that these created and that have not ended. Those that run are asked to stop; the others are the answer.
--   $1 [id]
WITH found AS MATERIALIZED (
    SELECT jobs.id
      FROM windlass.jobs
     WHERE jobs.parent = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
), child AS MATERIALIZED (
    SELECT jobs.id, jobs.status
      FROM found
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[found.id]) AND jobs.status <> 'dead'
     ORDER BY found.id
       FOR UPDATE OF jobs
), asked AS (
    UPDATE windlass.jobs SET cancel_requested = true, updated_at = windlass.now()
      FROM child
     WHERE jobs.id = ANY (ARRAY[child.id]) AND child.status = 'running'
)
SELECT id FROM child WHERE status <> 'running'

-- Lock a job that has not ended.   $1 [id]
SELECT id, status
  FROM windlass.jobs
 WHERE id = (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value))
   AND status <> 'dead'
   FOR UPDATE

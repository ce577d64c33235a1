-- States of jobs that are in the history.   $1 [id]
SELECT id, status
  FROM windlass.history
 WHERE id = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))

-- States of jobs that are in the history, or whose key for ever tells that they succeeded.   $1 [id]
SELECT id, status
  FROM windlass.history
 WHERE id = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
UNION
SELECT job, 'succeeded'
  FROM windlass.keys
 WHERE job = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
   AND forever AND NOT free AND ended_at IS NOT NULL

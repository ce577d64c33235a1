-- These jobs wait for nothing any more.   $1 [id]
DELETE FROM windlass.waits
 WHERE job = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))

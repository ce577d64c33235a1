-- A job comes back and wants its key, which is its own still, or free again.   $1 [id]
WITH back AS MATERIALIZED (
    SELECT id, key, key_scope
      FROM windlass.jobs
     WHERE id = (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value))
)
UPDATE windlass.keys SET job = back.id, free = false, ended_at = NULL
  FROM back
 WHERE (keys.scope, keys.key) BETWEEN (back.key_scope, back.key) AND (back.key_scope, back.key)
   AND (keys.job = back.id OR keys.free OR keys.until <= windlass.now())
RETURNING keys.key, keys.job

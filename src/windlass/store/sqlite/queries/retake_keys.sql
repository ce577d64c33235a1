-- A job comes back and wants its key, which is its own still, or free again.   ?1 [id]   ?2 now
UPDATE windlass_keys SET job = back.id, free = 0, ended_at = NULL
  FROM (SELECT id, key, key_scope FROM windlass_jobs WHERE id IN (SELECT value FROM json_each(?1))) AS back
 WHERE windlass_keys.scope = back.key_scope AND windlass_keys.key = back.key
   AND (windlass_keys.job = back.id OR windlass_keys.free OR windlass_keys.until <= ?2)
RETURNING windlass_keys.key, windlass_keys.job

-- Slots come back. A bucket's tokens are used.   ?1 [{key, n}]   ?2 now; returns the keys at which jobs are parked
UPDATE windlass_turnstiles SET used = max(0, used - back.n), touched_at = ?2
  FROM (SELECT value ->> 'key' AS key, value ->> 'n' AS n FROM json_each(?1)) AS back
 WHERE windlass_turnstiles.key = back.key AND windlass_turnstiles.most IS NOT NULL
RETURNING iif(EXISTS (SELECT 1 FROM windlass_jobs WHERE parked_on = windlass_turnstiles.key), windlass_turnstiles.key, NULL)

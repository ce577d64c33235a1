-- Slots come back. A bucket's tokens are used.   $1 [{key, n}], sorted; returns the keys at which jobs may be parked
--
-- Locked by the first step, in the order of keys, so that all lock in one order: in a handler's transaction the planner may
-- read the whole table. What is not counted yet stays closed.
WITH back AS MATERIALIZED (
    SELECT key, n FROM json_to_recordset(CAST($1 AS json)) AS back (key text, n int)
), stile AS MATERIALIZED (
    SELECT turnstiles.key
      FROM windlass.turnstiles
     WHERE turnstiles.key = ANY (ARRAY (SELECT key FROM back)) AND most IS NOT NULL
     ORDER BY turnstiles.key
       FOR UPDATE
)
UPDATE windlass.turnstiles
   SET used = CASE WHEN counted THEN greatest(0, used - back.n) ELSE used END,
       crowded = crowded AND used > back.n, touched_at = windlass.now()
  FROM stile
  JOIN back USING (key)
 WHERE turnstiles.key = ANY (ARRAY[stile.key])
RETURNING CASE WHEN parked THEN turnstiles.key END

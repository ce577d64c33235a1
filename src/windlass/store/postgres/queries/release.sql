-- Slots come back. The keys are in order, and so is the index, so that all lock in one order. A bucket's tokens are used.
--   $1 [{key, n}], sorted; returns the keys at which jobs may be parked
WITH back AS MATERIALIZED (
    SELECT json_object_agg(key, n)::jsonb AS slots, array_agg(key) AS keys
      FROM json_to_recordset(CAST($1 AS json)) AS back (key text, n int)
)
UPDATE windlass.turnstiles
   SET used = greatest(0, used - ((SELECT slots FROM back) ->> key)::int),
       crowded = crowded AND used > ((SELECT slots FROM back) ->> key)::int, touched_at = windlass.now()
 WHERE key = ANY ((SELECT keys FROM back)::text[]) AND most IS NOT NULL
RETURNING CASE WHEN parked THEN key END

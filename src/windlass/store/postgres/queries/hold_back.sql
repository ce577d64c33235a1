-- Nobody gets anything of these keys for so long; a longer hold stays. Afterwards a bucket has one token and not a burst.
--   $1 [{key, name, seconds}], sorted
WITH held AS MATERIALIZED (
    SELECT turnstiles.key, windlass.now() + make_interval(secs => held.seconds) AS until
      FROM json_to_recordset(CAST($1 AS json)) AS held (key text, seconds float8)
      JOIN windlass.turnstiles ON turnstiles.key = ANY (ARRAY[held.key])
     ORDER BY held.key
       FOR UPDATE OF turnstiles
)
UPDATE windlass.turnstiles
   SET held_until = greatest(turnstiles.held_until, held.until), touched_at = windlass.now(),
       next_at = CASE WHEN period IS NULL THEN next_at
                      ELSE greatest(next_at, held.until + make_interval(secs => (burst - 1) * period)) END
  FROM held
 WHERE turnstiles.key = ANY (ARRAY[held.key])
RETURNING turnstiles.key

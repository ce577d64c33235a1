-- Nobody gets anything of these keys for so long; a longer hold stays. Afterwards a bucket has one token and not a burst.
--   ?1 [{key, name, seconds}]   ?2 now
UPDATE windlass_turnstiles
   SET held_until = max(coalesce(held_until, 0), held.until), touched_at = ?2,
       next_at = CASE WHEN period IS NULL THEN next_at
                      ELSE max(next_at, held.until + CAST(round((burst - 1) * period * 1000000) AS INTEGER)) END
  FROM (SELECT value ->> 'key' AS key, ?2 + CAST(round((value ->> 'seconds') * 1000000) AS INTEGER) AS until
          FROM json_each(?1)) AS held
 WHERE windlass_turnstiles.key = held.key
RETURNING key

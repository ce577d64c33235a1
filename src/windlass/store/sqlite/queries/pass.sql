-- A claim took slots and tokens.   ?1 {key: n}   ?2 now
UPDATE windlass_turnstiles
   SET used = iif(most IS NULL, used, used + taken.value), touched_at = ?2,
       next_at = CASE WHEN period IS NULL THEN next_at
                      ELSE max(next_at, ?2) + CAST(round(taken.value * period * 1000000) AS INTEGER) END
  FROM json_each(?1) AS taken
 WHERE windlass_turnstiles.key = taken.key

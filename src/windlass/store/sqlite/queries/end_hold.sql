-- Nobody holds back from this key any more; no row where nobody did.   ?1 [key]   ?2 now
--
-- When the last token was taken is not known any more: the bucket counts as empty, which no rate exceeds. In the last
-- five seconds of a hold, handlers sleep with tokens for the time after it: their times stay taken.
UPDATE windlass_turnstiles
   SET held_until = NULL, touched_at = ?2,
       next_at = CASE WHEN period IS NULL OR held_until <= ?2 + 5000000 THEN next_at
                      ELSE min(next_at, ?2 + CAST(round(burst * period * 1000000) AS INTEGER)) END
 WHERE key = ?1 ->> 0 AND held_until > ?2
RETURNING key

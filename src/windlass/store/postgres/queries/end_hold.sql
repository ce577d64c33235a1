-- Nobody holds back from this key any more; no row where nobody did.   $1 [key]
--
-- When the last token was taken is not known any more: the bucket counts as empty, which no rate exceeds. In the last
-- five seconds of a hold, handlers sleep with tokens for the time after it: their times stay taken.
UPDATE windlass.turnstiles
   SET held_until = NULL, touched_at = windlass.now(),
       next_at = CASE WHEN period IS NULL OR held_until <= windlass.now() + interval '5 seconds' THEN next_at
                      ELSE least(next_at, windlass.now() + make_interval(secs => burst * period)) END
 WHERE key = CAST($1 AS json) ->> 0 AND held_until > windlass.now()
RETURNING key

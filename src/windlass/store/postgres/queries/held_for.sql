-- Seconds for which everybody holds back.   $1 [key]
SELECT extract(epoch FROM held_until - windlass.now())::float8
  FROM windlass.turnstiles
 WHERE key = CAST($1 AS json) ->> 0 AND held_until > windlass.now()

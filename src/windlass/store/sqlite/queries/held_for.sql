-- Seconds for which everybody holds back.   ?1 [key]   ?2 now
SELECT (held_until - ?2) / 1000000.0 FROM windlass_turnstiles WHERE key = ?1 ->> 0 AND held_until > ?2

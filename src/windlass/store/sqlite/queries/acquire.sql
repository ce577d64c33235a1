-- A token of a bucket: seconds until its time, and whether it was taken; no row for a key that nobody declared. A limit
-- has no tokens: it only knows whether somebody holds back.   ?1 [{key, most}]   ?2 now
SELECT (token_at(period, burst, next_at, held_until, ?2) - ?2) / 1000000.0,
       token_at(period, burst, next_at, held_until, ?2) - ?2 <= (wanted.value ->> 'most') * 1000000
  FROM json_each(?1) AS wanted
  JOIN windlass_turnstiles AS turnstiles ON turnstiles.key = wanted.value ->> 'key'
-- then
UPDATE windlass_turnstiles
   SET next_at = max(next_at, ?2) + CAST(round(coalesce(period, 0) * 1000000) AS INTEGER), touched_at = ?2
  FROM json_each(?1) AS wanted
 WHERE windlass_turnstiles.key = wanted.value ->> 'key'
   AND token_at(period, burst, next_at, held_until, ?2) - ?2 <= (wanted.value ->> 'most') * 1000000

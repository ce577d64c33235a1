-- Keys in use, with those who wait there. Of a bucket, the tokens that are gone are in use.
--   ?1 [name or key], null: all   ?2 now
SELECT key, name, most,
       iif(period IS NULL, used, burst - room(most, used, period, burst, next_at, NULL, ?2)) AS used,
       period, burst,
       iif(period IS NULL, 0.0, (token_at(period, burst, next_at, NULL, ?2) - ?2) / 1000000.0) AS free_in,
       max(0.0, coalesce((held_until - ?2) / 1000000.0, 0.0)) AS held,
       (SELECT count(*) FROM windlass_jobs AS jobs WHERE jobs.parked_on = turnstiles.key) AS waiting
  FROM windlass_turnstiles AS turnstiles
 WHERE ?1 ->> 0 IS NULL OR ?1 ->> 0 IN (name, key)
 ORDER BY waiting DESC, used DESC, key

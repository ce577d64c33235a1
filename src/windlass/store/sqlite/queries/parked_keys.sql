-- The keys at which jobs are parked, with their room, and the seconds until a bucket has its next token.   ?1 []   ?2 now
--
-- A loose index scan: one descent per key, whatever the number of jobs.
WITH RECURSIVE parked (key) AS (
    SELECT (SELECT min(parked_on) FROM windlass_jobs WHERE parked_on IS NOT NULL)
    UNION ALL
    SELECT (SELECT min(parked_on) FROM windlass_jobs WHERE parked_on > parked.key)
      FROM parked
     WHERE parked.key IS NOT NULL
)
SELECT parked.key,
       CASE WHEN turnstiles.key IS NULL THEN 1000000
            ELSE room(most, used, period, burst, next_at, held_until, ?2) END,
       -- The claim that takes what is let in now tells the time of the token after it.
       CASE WHEN room(most, used, period, burst, next_at, held_until, ?2) = 0 AND (period IS NOT NULL OR held_until > ?2)
            THEN (token_at(period, burst, next_at, held_until, ?2) - ?2) / 1000000.0 END
  FROM parked
  LEFT JOIN windlass_turnstiles AS turnstiles ON turnstiles.key = parked.key
 WHERE parked.key IS NOT NULL

-- What time it is, in microseconds since the epoch.   ?1 []   ?2 now
SELECT ?2 WHERE ?1 IS NOT NULL

-- Jobs whose key is full leave the claim's index, until unpark.sql lets them in.   ?1 [[id, key]]   ?2 now
UPDATE windlass_jobs SET parked_on = late.key
  FROM (SELECT value ->> 0 AS id, value ->> 1 AS key FROM json_each(?1)) AS late
 WHERE windlass_jobs.id = late.id

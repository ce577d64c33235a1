-- Arrivals on their waiters.   ?1 [{job, fence, arrived, succeeded}]   ?2 now
UPDATE windlass_waits
   SET pending = windlass_waits.pending - arrived.arrived, succeeded = windlass_waits.succeeded + arrived.succeeded
  FROM (SELECT value ->> 'job' AS job, value ->> 'fence' AS fence, value ->> 'arrived' AS arrived, value ->> 'succeeded' AS succeeded
          FROM json_each(?1)) AS arrived
 WHERE windlass_waits.job = arrived.job AND windlass_waits.fence = arrived.fence
RETURNING job, fence, need, pending, succeeded, batch

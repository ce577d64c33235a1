-- Arrivals on their waiters.   ?1 [{job, fence, arrived, succeeded, bad}]   ?2 now
UPDATE windlass_waits
   SET pending = windlass_waits.pending - arrived.arrived, succeeded = windlass_waits.succeeded + arrived.succeeded,
       bad = windlass_waits.bad + arrived.bad
  FROM (SELECT value ->> 'job' AS job, value ->> 'fence' AS fence, value ->> 'arrived' AS arrived, value ->> 'succeeded' AS succeeded,
               value ->> 'bad' AS bad
          FROM json_each(?1)) AS arrived
 WHERE windlass_waits.job = arrived.job AND windlass_waits.fence = arrived.fence
RETURNING job, fence, need, pending, succeeded, batch

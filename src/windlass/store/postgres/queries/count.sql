-- Arrivals on their waiters. The lock on a waiter's row, in one order, makes one arrival the last.
--   $1 [{job, fence, arrived, succeeded, bad}]
WITH arrived AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS arrived (job uuid, fence bigint, arrived int, succeeded int, bad int)
), held AS MATERIALIZED (
    SELECT waits.job, arrived.arrived, arrived.succeeded, arrived.bad
      FROM arrived
      JOIN windlass.waits ON waits.job = ANY (ARRAY[arrived.job]) AND waits.fence = arrived.fence
     ORDER BY arrived.job
       FOR UPDATE OF waits
)
UPDATE windlass.waits
   SET pending = waits.pending - held.arrived, succeeded = waits.succeeded + held.succeeded,
       bad = waits.bad + held.bad
  FROM held
 WHERE waits.job = ANY (ARRAY[held.job])
RETURNING waits.job, waits.fence, waits.need, waits.pending, waits.succeeded, waits.batch

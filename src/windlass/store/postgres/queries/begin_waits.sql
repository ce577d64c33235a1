-- Jobs that are waiting by now; the answer are those whose signal has come already: their rows are locked, so that one
-- which is sent from here on finds them waiting.   $1 [{job, fence, need, pending, succeeded, bad, total, batch, signal, delay}]
WITH new AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json))
        AS new (job uuid, fence bigint, need int, pending int, succeeded int, bad int, total int, batch boolean, signal text, delay float8)
), put AS (
    INSERT INTO windlass.waits (job, fence, need, pending, succeeded, bad, total, batch, signal, wake_at)
    SELECT job, fence, need, pending, succeeded, bad, total, batch, signal,
           windlass.now() + make_interval(secs => delay) FROM new
        ON CONFLICT (job) DO UPDATE
       SET fence = excluded.fence, need = excluded.need, pending = excluded.pending, succeeded = excluded.succeeded,
           bad = excluded.bad, total = excluded.total,
           batch = excluded.batch, signal = excluded.signal, wake_at = excluded.wake_at
)
SELECT new.job
  FROM new
 WHERE EXISTS (SELECT FROM windlass.signals WHERE signals.job = new.job AND signals.name = new.signal OFFSET 0)

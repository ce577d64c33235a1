-- Jobs that are waiting by now; the answer are those whose signal has come already.
--   ?1 [{job, fence, need, pending, succeeded, bad, total, batch, signal, delay}]   ?2 now
INSERT INTO windlass_waits (job, fence, need, pending, succeeded, bad, total, batch, signal, wake_at)
SELECT value ->> 'job', value ->> 'fence', value ->> 'need', value ->> 'pending', value ->> 'succeeded',
       value ->> 'bad', value ->> 'total', value ->> 'batch',
       value ->> 'signal', ?2 + CAST(round((value ->> 'delay') * 1000000) AS INTEGER)
  FROM json_each(?1)
 WHERE true
    ON CONFLICT (job) DO UPDATE
   SET fence = excluded.fence, need = excluded.need, pending = excluded.pending, succeeded = excluded.succeeded,
       bad = excluded.bad, total = excluded.total, batch = excluded.batch,
       signal = excluded.signal, wake_at = excluded.wake_at
-- then
SELECT sent.job
  FROM json_each(?1) AS new
  JOIN windlass_signals AS sent ON sent.job = new.value ->> 'job' AND sent.name = new.value ->> 'signal'

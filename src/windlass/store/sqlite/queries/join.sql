-- Who waits for whom.   ?1 [{awaited, waiter, fence, policy, done, ok}]   ?2 now
INSERT INTO windlass_edges (awaited, waiter, fence, policy, done, ok)
SELECT value ->> 'awaited', value ->> 'waiter', value ->> 'fence', value ->> 'policy', value ->> 'done', value ->> 'ok'
  FROM json_each(?1)
 WHERE true
    ON CONFLICT (awaited, waiter) DO UPDATE
   SET fence = excluded.fence, policy = excluded.policy, done = excluded.done, ok = excluded.ok

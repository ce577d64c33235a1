-- Who waits for whom.   $1 [{awaited, waiter, fence, policy, done, ok}]
INSERT INTO windlass.edges (awaited, waiter, fence, policy, done, ok)
SELECT awaited, waiter, fence, policy, done, ok
  FROM json_to_recordset(CAST($1 AS json))
       AS new (awaited uuid, waiter uuid, fence bigint, policy text, done boolean, ok boolean)
    ON CONFLICT (awaited, waiter) DO UPDATE
   SET fence = excluded.fence, policy = excluded.policy, done = excluded.done, ok = excluded.ok

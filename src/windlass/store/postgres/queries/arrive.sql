-- Awaited jobs ended: mark their edges, once.   $1 [{awaited, ok}]
UPDATE windlass.edges
   SET done = true, ok = ended.ok OR edges.policy = 'continue'
  FROM json_to_recordset(CAST($1 AS json)) AS ended (awaited uuid, ok boolean)
 WHERE edges.awaited = ANY (ARRAY[ended.awaited]) AND NOT edges.done
RETURNING edges.waiter, edges.fence, edges.awaited, edges.policy, ended.ok

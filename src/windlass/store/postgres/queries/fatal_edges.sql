-- Edges that decide a wait whatever else may come.   $1 [id]
SELECT edges.waiter, edges.policy, edges.awaited
  FROM windlass.edges
 WHERE edges.waiter = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
   AND edges.done AND NOT edges.ok AND edges.policy IN ('fail', 'skip')
   AND edges.fence = (SELECT waits.fence FROM windlass.waits WHERE waits.job = edges.waiter)

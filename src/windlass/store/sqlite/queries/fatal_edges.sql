-- Edges that decide a wait whatever else may come.   ?1 [id]   ?2 now
SELECT edges.waiter, edges.policy, edges.awaited
  FROM windlass_edges AS edges
  JOIN windlass_waits AS waits ON waits.job = edges.waiter AND waits.fence = edges.fence
 WHERE edges.waiter IN (SELECT value FROM json_each(?1)) AND edges.done AND NOT edges.ok
   AND edges.policy IN ('fail', 'skip')

-- A job comes back from its end: whoever still waits for it waits for it again.   $1 [id]
WITH again AS MATERIALIZED (
    SELECT edges.awaited, edges.waiter, edges.fence, edges.ok
      FROM windlass.edges
     WHERE edges.awaited = (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value))
       AND edges.done
       FOR UPDATE
)
UPDATE windlass.edges SET done = false, ok = false
  FROM again
 WHERE (edges.awaited, edges.waiter) BETWEEN (again.awaited, again.waiter) AND (again.awaited, again.waiter)
RETURNING edges.waiter, edges.fence, again.ok

-- These jobs ended: nobody counts for them any more. Before unwait.sql, in the order in which arrivals lock.   $1 [id]
DELETE FROM windlass.edges
 WHERE waiter = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))

-- Jobs that would wait for one that waits, over any number of others, for them.   $1 [{job, awaited}]
WITH RECURSIVE wish AS MATERIALIZED (
    SELECT job, awaited FROM json_to_recordset(CAST($1 AS json)) AS wish (job uuid, awaited uuid)
), chain AS (
    SELECT job, awaited FROM wish
    UNION
    SELECT chain.job, edges.awaited
      FROM chain
      JOIN windlass.edges ON edges.waiter = chain.awaited AND NOT edges.done
      JOIN windlass.waits ON waits.job = edges.waiter AND waits.fence = edges.fence
)
SELECT DISTINCT job FROM chain WHERE awaited = job

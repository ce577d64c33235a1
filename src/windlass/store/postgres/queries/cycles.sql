-- Jobs that would wait for one that waits, over any number of others, for them.   $1 [{job, awaited}]
WITH RECURSIVE wish AS MATERIALIZED (
    SELECT job, awaited FROM json_to_recordset(CAST($1 AS json)) AS wish (job uuid, awaited uuid)
), chain AS (
    SELECT job, awaited FROM wish
    UNION
    -- LATERAL and a scalar subquery, so that each step is a descent of an index and never a scan of all waits.
    SELECT chain.job, following.awaited
      FROM chain
     CROSS JOIN LATERAL (
        SELECT edges.awaited
          FROM windlass.edges
         WHERE edges.waiter = chain.awaited AND NOT edges.done
           AND edges.fence = (SELECT waits.fence FROM windlass.waits WHERE waits.job = edges.waiter)
        OFFSET 0) AS following
)
SELECT DISTINCT job FROM chain WHERE awaited = job

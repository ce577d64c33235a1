-- Jobs that would wait for one that waits, over any number of others, for them.   ?1 [{job, awaited}]   ?2 now
WITH RECURSIVE chain AS (
    SELECT value ->> 'job' AS job, value ->> 'awaited' AS awaited FROM json_each(?1)
    UNION
    SELECT chain.job, edges.awaited
      FROM chain
      JOIN windlass_edges AS edges ON edges.waiter = chain.awaited AND NOT edges.done
      JOIN windlass_waits AS waits ON waits.job = edges.waiter AND waits.fence = edges.fence
)
SELECT DISTINCT job FROM chain WHERE awaited = job

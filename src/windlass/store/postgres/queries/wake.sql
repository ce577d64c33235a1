-- After the commit of an enqueue: one wake-up per queue, and only while a worker that serves it says it is idle.
SELECT pg_notify('windlass', wanted.queue)
  FROM unnest($1::text[]) AS wanted (queue)
 WHERE EXISTS (
    SELECT FROM windlass.workers
     WHERE idle AND NOT dead AND (queues IS NULL OR wanted.queue = ANY (queues)))

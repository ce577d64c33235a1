-- Awaited jobs ended: mark their edges, once.   ?1 [{awaited, ok}]   ?2 now
UPDATE windlass_edges
   SET done = 1, ok = ended.ok OR windlass_edges.policy = 'continue'
  FROM (SELECT value ->> 'awaited' AS awaited, value ->> 'ok' AS ok FROM json_each(?1)) AS ended
 WHERE windlass_edges.awaited = ended.awaited AND NOT windlass_edges.done
RETURNING waiter, fence, awaited, policy, ok AND (policy <> 'continue' OR EXISTS (
    SELECT 1 FROM json_each(?1) WHERE value ->> 'awaited' = windlass_edges.awaited AND value ->> 'ok'))

-- Jobs that just ended and whose end changes more than themselves.   ?1 [id]   ?2 now
SELECT id, status, tenant, trace, input, output, error, consequences
  FROM windlass_jobs
 WHERE id IN (SELECT value FROM json_each(?1)) AND followed AND status = 'dead'
UNION ALL
SELECT id, status, tenant, trace, input, output, error, consequences
  FROM windlass_history
 WHERE id IN (SELECT value FROM json_each(?1)) AND followed

-- The audit, newest first.   ?1 page   ?2 below this number   {where}: of one job, of one action
SELECT number, at, action, actor, job, type, queue, tenant, reason, subject
  FROM windlass_audit
 WHERE number < ?2{where}
 ORDER BY number DESC
 LIMIT ?1

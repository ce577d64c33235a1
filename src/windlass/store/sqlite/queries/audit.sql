-- The audit, newest first.   :job   :action   :page   :below
SELECT number, at, action, actor, job, type, queue, tenant, reason
  FROM windlass_audit
 WHERE (:job IS NULL OR job = :job) AND (:action IS NULL OR action = :action) AND (:below IS NULL OR number < :below)
 ORDER BY number DESC
 LIMIT :page

-- A final transition that was just written.   :action   :id   :now
INSERT INTO windlass_audit (at, action, job, type, queue, tenant, reason)
SELECT :now, :action, id, type, queue, tenant, reason FROM windlass_jobs WHERE id = :id
UNION ALL
SELECT :now, :action, id, type, queue, tenant, reason FROM windlass_history WHERE id = :id

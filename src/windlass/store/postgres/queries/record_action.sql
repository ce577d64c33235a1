-- What an operator did to a job, wherever its row is.   $1 [{action, actor, job}]
INSERT INTO windlass.audit (action, actor, job, type, queue, tenant, reason)
SELECT done.action, done.actor, found.id, found.type, found.queue, found.tenant, found.reason
  FROM json_to_recordset(CAST($1 AS json)) AS done (action text, actor text, job uuid)
 CROSS JOIN LATERAL (
    SELECT id, type, queue, tenant, reason FROM windlass.jobs WHERE jobs.id = done.job
    UNION ALL
    SELECT id, type, queue, tenant, reason FROM windlass.history WHERE history.id = done.job
    LIMIT 1) AS found

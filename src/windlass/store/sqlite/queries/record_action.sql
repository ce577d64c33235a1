-- What an operator did to a job, wherever its row is.   ?1 [{action, actor, job}]   ?2 now
INSERT INTO windlass_audit (at, action, actor, job, type, queue, tenant, reason)
SELECT ?2, done.value ->> 'action', done.value ->> 'actor', found.id, found.type, found.queue, found.tenant, found.reason
  FROM json_each(?1) AS done
  JOIN (SELECT id, type, queue, tenant, reason FROM windlass_jobs
        UNION ALL
        SELECT id, type, queue, tenant, reason FROM windlass_history) AS found ON found.id = done.value ->> 'job'

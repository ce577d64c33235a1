-- Audit: one row per final transition and per action of an operator.

-- name: audit
-- The audit, newest first.   ?1 page   ?2 below this number   {where}: of one job, of one action
SELECT number, at, action, actor, job, type, queue, tenant, reason, subject
  FROM windlass_audit
 WHERE number < ?2{where}
 ORDER BY number DESC
 LIMIT ?1

-- name: record_job_action
-- What an operator did to a job, wherever its row is.   ?1 [{action, actor, job}]   ?2 now
INSERT INTO windlass_audit (at, action, actor, job, type, queue, tenant, reason)
SELECT ?2, done.value ->> 'action', done.value ->> 'actor', found.id, found.type, found.queue, found.tenant, found.reason
  FROM json_each(?1) AS done
  JOIN (SELECT id, type, queue, tenant, reason FROM windlass_jobs
        UNION ALL
        SELECT id, type, queue, tenant, reason FROM windlass_history) AS found ON found.id = done.value ->> 'job'

-- name: record_subject_action
-- What an operator did to something that is no job.   ?1 [{action, actor, subject, reason}]   ?2 now
INSERT INTO windlass_audit (at, action, actor, subject, reason)
SELECT ?2, value ->> 'action', value ->> 'actor', value ->> 'subject', value ->> 'reason' FROM json_each(?1)

-- name: drop_audit
-- One page of what is older.   :audit   :page   :now
DELETE FROM windlass_audit WHERE number IN (SELECT number FROM windlass_audit WHERE at < :now - :audit LIMIT :page)

-- name: drop_history
-- One page of what retention has let go.
DELETE FROM windlass_history
 WHERE rowid IN (SELECT rowid FROM windlass_history WHERE finished_at < :now - :history LIMIT :page)

-- Audit: one row per final transition and per operation.

-- name: audit
-- Rows of the audit, newest first. The condition names a job, an action, a tenant, an actor, or several of them.
--   ?1 page   ?2 below this number
SELECT number, at, action, actor, job, type, queue, tenant, reason, subject
  FROM windlass_audit
 WHERE number < ?2{where}
 ORDER BY number DESC
 LIMIT ?1

-- name: changes
-- What operators did, newest first, among the newest 5,000 rows: most rows are ends of jobs.
--   :page
SELECT number, at, action, actor, job, type, queue, tenant, reason, subject
  FROM (SELECT * FROM windlass_audit ORDER BY number DESC LIMIT 5000)
 WHERE actor IS NOT NULL
 ORDER BY number DESC
 LIMIT :page

-- name: record_job_action
-- Write a row of the audit for an operation on a job, which may be in the jobs or in the history.
--   ?1 [{action, actor, job}]   ?2 now
INSERT INTO windlass_audit (at, action, actor, job, type, queue, tenant, reason)
SELECT ?2, done.value ->> 'action', done.value ->> 'actor', found.id, found.type, found.queue, found.tenant,
       found.reason
  FROM json_each(?1) AS done
  JOIN (SELECT id, type, queue, tenant, reason FROM windlass_jobs
        UNION ALL
        SELECT id, type, queue, tenant, reason FROM windlass_history) AS found ON found.id = done.value ->> 'job'
RETURNING job

-- name: record_subject_action
-- Write a row of the audit for an operation on something that is no job.
--   ?1 [{action, actor, subject, reason}]   ?2 now
INSERT INTO windlass_audit (at, action, actor, subject, reason)
SELECT ?2, value ->> 'action', value ->> 'actor', value ->> 'subject', value ->> 'reason' FROM json_each(?1)

-- name: drop_audit
-- Delete one page of rows older than the audit's retention.
--   :audit in microseconds   :page   :now
DELETE FROM windlass_audit WHERE number IN (SELECT number FROM windlass_audit WHERE at < :now - :audit LIMIT :page)

-- name: drop_history
-- Delete one page of jobs older than the history's retention.
--   :history in microseconds   :page   :now
DELETE FROM windlass_history
 WHERE rowid IN (SELECT rowid FROM windlass_history WHERE finished_at < :now - :history LIMIT :page)

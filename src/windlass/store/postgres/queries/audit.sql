-- Audit: one row per final transition and per action of an operator.

-- name: audit
-- List the audit, newest first.
--
--   $1 page   $2 below this number   $3 … the conditions on a job, an action, a tenant or an actor
SELECT number, at, action, actor, job, type, queue, tenant, reason, subject
  FROM windlass.audit
 WHERE number < $2::bigint{where}
 ORDER BY number DESC
 LIMIT $1::int

-- name: changes
-- List what operators did, newest first, among the newest 5,000 rows: no index has the rows of every actor in their
-- order, and most rows are ends of jobs.
--
--   $1 page
SELECT number, at, action, actor, job, type, queue, tenant, reason, subject
  FROM (SELECT * FROM windlass.audit ORDER BY number DESC LIMIT 5000) AS newest
 WHERE actor IS NOT NULL
 ORDER BY number DESC
 LIMIT $1::int

-- name: record_job_action
-- Record what an operator did to a job, in whichever table its row is.
--
--   $1 [{action, actor, job}]
INSERT INTO windlass.audit (action, actor, job, type, queue, tenant, reason)
SELECT done.action, done.actor, found.id, found.type, found.queue, found.tenant, found.reason
  FROM json_to_recordset(CAST($1 AS json)) AS done (action text, actor text, job uuid)
 CROSS JOIN LATERAL (
    SELECT id, type, queue, tenant, reason FROM windlass.jobs WHERE jobs.id = done.job
    UNION ALL
    SELECT id, type, queue, tenant, reason FROM windlass.history WHERE history.id = done.job
    LIMIT 1) AS found
RETURNING job

-- name: record_subject_action
-- Record what an operator did to something that is not a job.
--
--   $1 [{action, actor, subject, reason}]
INSERT INTO windlass.audit (action, actor, subject, reason)
SELECT action, actor, subject, reason
  FROM json_to_recordset(CAST($1 AS json)) AS new (action text, actor text, subject text, reason text)

-- What these jobs waited for cannot come: they die. A row that somebody holds is skipped.   $1 [{id, reason}]
WITH lost AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS lost (id uuid, reason text)
), held AS MATERIALIZED (
    SELECT lost.id, lost.reason
      FROM lost
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[lost.id]) AND jobs.status = 'waiting'
     ORDER BY lost.id
       FOR UPDATE OF jobs SKIP LOCKED
), dead AS (
    UPDATE windlass.jobs
       SET status = 'dead', reason = lost.reason, finished_at = windlass.now(), updated_at = windlass.now(),
           error = json_build_object('type', 'Abandoned', 'message', lost.reason, 'attempt', jobs.attempt,
                                     'attemptedAt', windlass.now())
      FROM held AS lost
     WHERE jobs.id = ANY (ARRAY[lost.id])
 RETURNING jobs.id, jobs.type, jobs.queue, jobs.tenant, jobs.reason
), audited AS (
    INSERT INTO windlass.audit (action, job, type, queue, tenant, reason)
    SELECT 'JOB_DEAD', id, type, queue, tenant, reason FROM dead
)
SELECT id FROM dead

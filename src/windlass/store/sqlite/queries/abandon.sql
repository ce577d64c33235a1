-- What these jobs waited for cannot come: they die.   ?1 [{id, reason}]   ?2 now
INSERT INTO windlass_audit (at, action, job, type, queue, tenant, reason)
SELECT ?2, 'JOB_DEAD', jobs.id, jobs.type, jobs.queue, jobs.tenant, lost.value ->> 'reason'
  FROM json_each(?1) AS lost
  JOIN windlass_jobs AS jobs ON jobs.id = lost.value ->> 'id' AND jobs.status = 'waiting'
-- then
UPDATE windlass_jobs
   SET status = 'dead', reason = lost.reason, finished_at = ?2, updated_at = ?2,
       error = json_object('type', 'Abandoned', 'message', lost.reason, 'attempt', attempt, 'attemptedAt',
                           strftime('%Y-%m-%dT%H:%M:%fZ', ?2 / 1000000.0, 'unixepoch'))
  FROM (SELECT value ->> 'id' AS id, value ->> 'reason' AS reason FROM json_each(?1)) AS lost
 WHERE windlass_jobs.id = lost.id AND windlass_jobs.status = 'waiting'
RETURNING id

-- A batch's counters on the job that waits for it.   ?1 [{job, total (null keeps it), processed, failed}]   ?2 now
UPDATE windlass_jobs
   SET total = coalesce(counted.total, windlass_jobs.total), processed = windlass_jobs.processed + counted.processed,
       failed = windlass_jobs.failed + counted.failed, updated_at = ?2
  FROM (SELECT value ->> 'job' AS job, value ->> 'total' AS total, value ->> 'processed' AS processed,
               value ->> 'failed' AS failed
          FROM json_each(?1)) AS counted
 WHERE windlass_jobs.id = counted.job AND windlass_jobs.status = 'waiting'

-- A batch's counters on the job that waits for it.   $1 [{job, total (null keeps it), processed, failed}]
UPDATE windlass.jobs
   SET total = coalesce(counted.total, jobs.total), processed = jobs.processed + counted.processed,
       failed = jobs.failed + counted.failed, updated_at = windlass.now()
  FROM json_to_recordset(CAST($1 AS json)) AS counted (job uuid, total int, processed int, failed int)
 WHERE jobs.id = counted.job AND jobs.status = 'waiting'

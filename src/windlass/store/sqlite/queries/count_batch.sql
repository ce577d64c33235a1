-- A batch's counters, as its wait has them now, on the job that waits.   ?1 [id]   ?2 now
UPDATE windlass_jobs
   SET total = waits.total, processed = waits.total - waits.pending - waits.bad, failed = waits.bad, updated_at = ?2
  FROM (SELECT job, total, pending, bad FROM windlass_waits
         WHERE batch AND job IN (SELECT value FROM json_each(?1))) AS waits
 WHERE windlass_jobs.id = waits.job AND windlass_jobs.status = 'waiting'

-- A page of jobs that dead or unknown workers hold, besides some.   :page   :jobs these not
SELECT id
  FROM windlass_jobs
 WHERE status = 'running' AND id NOT IN (SELECT value FROM json_each(:jobs))
   AND worker IN (
        SELECT holder.worker
          FROM (SELECT DISTINCT worker FROM windlass_jobs WHERE status = 'running') AS holder
          LEFT JOIN windlass_workers AS workers ON workers.id = holder.worker
         WHERE workers.id IS NULL OR workers.dead)
 LIMIT :page

-- A page of jobs that dead workers hold, besides some.   $1 page   $2 these not
SELECT jobs.id
  FROM windlass.jobs
 WHERE jobs.status = 'running'
   AND jobs.worker = ANY (ARRAY (SELECT id FROM windlass.workers WHERE dead))
   AND jobs.id <> ALL ($2::uuid[])
 LIMIT $1::int

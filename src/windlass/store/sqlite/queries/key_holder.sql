-- Who holds a job's key.   ?1 [id]   ?2 now
SELECT held.key, held.job
  FROM windlass_jobs AS jobs
  JOIN windlass_keys AS held ON held.scope = jobs.key_scope AND held.key = jobs.key
 WHERE jobs.id IN (SELECT value FROM json_each(?1))

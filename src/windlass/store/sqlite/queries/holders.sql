-- Who holds a slot of a key, the longest first.   :key   :page
SELECT {columns}
  FROM windlass_jobs AS jobs
 WHERE jobs.status = 'running' AND EXISTS (SELECT 1 FROM json_each(jobs.limits) AS need WHERE need.value = :key)
 ORDER BY jobs.claimed_at, jobs.id
 LIMIT :page

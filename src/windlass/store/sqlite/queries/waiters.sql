-- Who is parked on a key, in the order in which they are let in.   :key   :page
SELECT {columns}
  FROM windlass_jobs AS jobs
 WHERE jobs.parked_on = :key
 ORDER BY jobs.phase_rank, jobs.priority DESC, jobs.run_at, jobs.id
 LIMIT :page

-- Who is parked on a key, in the order in which they are let in.   $1 key   $2 page
SELECT {columns} FROM windlass.jobs
 WHERE jobs.parked_on = $1
 ORDER BY jobs.phase_rank, (-jobs.priority), jobs.run_at, jobs.id
 LIMIT $2

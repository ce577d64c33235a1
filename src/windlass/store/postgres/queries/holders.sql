-- Who holds a slot of a key, the longest first.   $1 key   $2 page
SELECT {columns} FROM windlass.jobs
 WHERE jobs.status = 'running' AND $1 = ANY (jobs.limits)
 ORDER BY jobs.claimed_at, jobs.id
 LIMIT $2

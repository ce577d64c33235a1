-- The audit, newest first.   $1 job   $2 action   $3 page   $4 below this number
SELECT number, at, action, actor, job, type, queue, tenant, reason
  FROM windlass.audit
 WHERE ($1::uuid IS NULL OR job = $1) AND ($2::text IS NULL OR action = $2) AND ($4::bigint IS NULL OR number < $4)
 ORDER BY number DESC
 LIMIT $3::int

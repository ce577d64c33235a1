-- The claim of the steady pace: the same conditions, ordered by created_at.
--
--   $1 worker   $2 room   $3 token   $4 types   $5 queues (null: all)   $6 suspects   $7 rest in seconds
--
-- No floor and no lanes: it runs once a minute, and sorts what is due.
WITH closed AS MATERIALIZED (
    SELECT kind, name FROM windlass.gates WHERE state <> 'open'
), picked AS MATERIALIZED (
    SELECT jobs.id
      FROM windlass.jobs
     WHERE EXISTS (SELECT FROM windlass.workers WHERE workers.id = $1::uuid AND NOT workers.dead)
       AND jobs.status IN ('queued', 'failed') AND NOT jobs.cancel_requested
       AND ($5::text[] IS NULL OR jobs.queue = ANY ($5::text[]))
       AND jobs.run_at <= windlass.now()
       AND jobs.type = ANY ($4::text[])
       AND NOT EXISTS (SELECT FROM closed WHERE kind = 'all')
       AND jobs.queue NOT IN (SELECT name FROM closed WHERE kind = 'queue')
       AND jobs.type NOT IN (SELECT name FROM closed WHERE kind = 'type')
       AND jobs.tenant NOT IN (SELECT name FROM closed WHERE kind = 'tenant')
       AND CASE $6::text WHEN 'with' THEN true WHEN 'only' THEN jobs.crashes > 0 ELSE jobs.crashes = 0 END
       AND jobs.updated_at <= windlass.now() - make_interval(secs => $7::float8)
     ORDER BY jobs.phase_rank, (-jobs.priority), jobs.created_at, jobs.id
     LIMIT $2::int
       FOR UPDATE SKIP LOCKED
)
UPDATE windlass.jobs
   SET status = 'running', token = $3::uuid, fence = fence + 1, worker = $1::uuid, attempt = attempt + 1,
       claimed_at = windlass.now(), started_at = windlass.now(), updated_at = windlass.now()
  FROM picked
 WHERE jobs.id = picked.id
RETURNING {columns}

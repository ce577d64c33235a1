-- Jobs: enqueue, find, search, count.

-- name: enqueue
-- New jobs, in whatever transaction this runs: one JSON array as the only parameter, so that every driver can carry
-- it (asyncpg, psycopg, SQLAlchemy), whatever its placeholders look like. Statement time: a delay inside a long
-- transaction counts from this call.
INSERT INTO windlass.jobs (id, tenant, queue, type, priority, input, max_attempts, run_at, key, parent, pipeline,
                           phase, phase_rank, trace, copied_from, consequences, followed, status, key_scope, limits)
SELECT new.id, new.tenant, new.queue, new.type, new.priority, new.input, new.max_attempts,
       coalesce(new.run_at, windlass.now() + make_interval(secs => coalesce(new.delay, 0))),
       new.key, new.parent, new.pipeline, coalesce(new.phase, new.queue), new.phase_rank, new.trace, new.copied_from,
       new.consequences, new.followed, new.status, new.key_scope,
       CASE WHEN new.limits IS NOT NULL THEN ARRAY (SELECT json_array_elements_text(new.limits)) END
  FROM json_to_recordset(CAST($1 AS json))
       AS new (id uuid, tenant text, queue text, type text, priority int, input json, max_attempts int,
               run_at timestamptz, delay float8, key text, parent uuid, pipeline text, phase text, phase_rank int,
               trace text, copied_from uuid, consequences json, followed boolean, status text,
               key_scope text, limits json)

-- name: find
-- One job, wherever it is. One statement and so one snapshot: a job on its way to the history is in one place only.
SELECT {columns} FROM windlass.jobs WHERE jobs.id = $1
UNION ALL
SELECT {columns} FROM windlass.history AS jobs WHERE jobs.id = $1

-- name: find_many
-- Jobs by their ids, wherever they are.   $1 ids
SELECT {columns} FROM windlass.jobs WHERE jobs.id = ANY ($1::uuid[])
UNION ALL
SELECT {columns} FROM windlass.history AS jobs WHERE jobs.id = ANY ($1::uuid[])

-- name: search
-- Jobs that match a filter, newest first, a page at a time: ids are UUIDv7, so that their order is the order of creation
-- and a page begins below the last id of the one before. `{where}` comes from store/parts/search.py and holds parameters only.
--
--   $1 page   $2 begin below this id (null: at the top)   $3 … the filter's own
--
-- coalesce and not "$2 IS NULL OR …": a comparison with one value is where an index scan begins, an OR is a filter that
-- walks over every page before.
(SELECT {columns} FROM windlass.jobs
  WHERE jobs.id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid) AND {where}
  ORDER BY jobs.id DESC LIMIT $1)
UNION ALL
(SELECT {columns} FROM windlass.history AS jobs
  WHERE jobs.id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid) AND {where}
  ORDER BY jobs.id DESC LIMIT $1)
ORDER BY id DESC LIMIT $1

-- name: count_by_state
SELECT status, count(*)::bigint AS jobs FROM windlass.jobs GROUP BY status
UNION ALL
SELECT status, count(*)::bigint FROM windlass.history GROUP BY status

-- name: queues
-- Every queue with its jobs by state, and since when its oldest due job waits.
SELECT queue,
       count(*) FILTER (WHERE status = 'queued') AS queued,
       count(*) FILTER (WHERE status = 'running') AS running,
       count(*) FILTER (WHERE status = 'failed') AS failed,
       count(*) FILTER (WHERE status = 'waiting') AS waiting,
       count(*) FILTER (WHERE status = 'dead') AS dead,
       extract(epoch FROM windlass.now() - min(run_at)
           FILTER (WHERE status IN ('queued', 'failed') AND run_at <= windlass.now() AND run_at > '-infinity'))::float8 AS lag
  FROM windlass.jobs
 GROUP BY queue
 ORDER BY queue

-- name: lock_job
-- Lock a job that has not ended.   $1 [id]
SELECT id, status
  FROM windlass.jobs
 WHERE id = (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value))
   AND status <> 'dead'
   FOR UPDATE

-- name: wake_idle_workers
-- After the commit of an enqueue: one wake-up per queue, and only while a worker that serves it says it is idle.
SELECT pg_notify('windlass', wanted.queue)
  FROM unnest($1::text[]) AS wanted (queue)
 WHERE EXISTS (
    SELECT FROM windlass.workers
     WHERE idle AND NOT dead AND (queues IS NULL OR wanted.queue = ANY (queues)))

-- name: jobs_of_worker
-- The running jobs of one worker, besides those it knows.   $1 worker   $2 jobs
SELECT {columns} FROM windlass.jobs WHERE jobs.worker = $1 AND jobs.status = 'running' AND jobs.id <> ALL ($2::uuid[])
 ORDER BY jobs.id

-- name: leases_of_worker
-- The same as held.sql, without anything that might not be readable.   $1 worker   $2 jobs
SELECT jobs.id, jobs.token, jobs.fence
  FROM windlass.jobs
 WHERE jobs.worker = $1 AND jobs.status = 'running' AND jobs.id <> ALL ($2::uuid[])

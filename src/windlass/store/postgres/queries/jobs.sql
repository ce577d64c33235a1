-- Jobs: enqueue, find, search.

-- fragment: ids
-- The ids that $1 carries as JSON: [id].
ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value))

-- fragment: id
-- The only id that $1 carries as JSON: [id].
(SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value))

-- fragment: overdue
-- Jobs that wait for a claim and are due. A time that is infinite was written by hand and has no age.
{claimable_status} AND jobs.run_at <= windlass.now() AND jobs.run_at > '-infinity'

-- name: enqueue
-- Insert new jobs, in whatever transaction this runs.
--
--   $1 [job], in the encoding of store/parts/encoding.py
--
-- One JSON array is the only parameter, so that every driver can carry it (asyncpg, psycopg, SQLAlchemy), whatever its
-- placeholders look like. The clock is the statement's time: a delay inside a long transaction counts from this call.
INSERT INTO windlass.jobs (id, tenant, queue, type, priority, input, max_attempts, run_at, key, parent, pipeline,
                           phase, phase_rank, trace, copied_from, follow_ups, followed, status, key_scope, limits)
SELECT new.id, new.tenant, new.queue, new.type, new.priority, new.input, new.max_attempts,
       coalesce(new.run_at, windlass.now() + make_interval(secs => coalesce(new.delay, 0))),
       new.key, new.parent, new.pipeline, coalesce(new.phase, new.queue), new.phase_rank, new.trace, new.copied_from,
       new.follow_ups, new.followed, new.status, new.key_scope,
       CASE WHEN new.limits IS NOT NULL THEN ARRAY (SELECT json_array_elements_text(new.limits)) END
  FROM json_to_recordset(CAST($1 AS json))
       AS new (id uuid, tenant text, queue text, type text, priority int, input json, max_attempts int,
               run_at timestamptz, delay float8, key text, parent uuid, pipeline text, phase text, phase_rank int,
               trace text, copied_from uuid, follow_ups json, followed boolean, status text,
               key_scope text, limits json)

-- name: find
-- Find one job, in whichever table its row is.
--
--   $1 id
--
-- One statement and so one snapshot: a job that is moved to the history is found in exactly one place.
SELECT {columns} FROM windlass.jobs WHERE jobs.id = $1
UNION ALL
SELECT {columns} FROM windlass.history AS jobs WHERE jobs.id = $1

-- name: find_many
-- Find jobs by their ids, in whichever table their rows are.
--
--   $1 ids
SELECT {columns} FROM windlass.jobs WHERE jobs.id = ANY ($1::uuid[])
UNION ALL
SELECT {columns} FROM windlass.history AS jobs WHERE jobs.id = ANY ($1::uuid[])

-- name: find_brief
-- Find jobs by their ids, in whichever table their rows are, without input and output.
--
--   $1 ids
SELECT {brief_columns} FROM windlass.jobs WHERE jobs.id = ANY ($1::uuid[])
UNION ALL
SELECT {brief_columns} FROM windlass.history AS jobs WHERE jobs.id = ANY ($1::uuid[])

-- name: states
-- Read how far jobs are, by their ids, in whichever table their rows are. Documents (input, output, error, attempts) are
-- left out: a large one is stored apart from its row, and is not read.
--
--   $1 ids
SELECT id, tenant, status, attempt, total, processed, failed, updated_at FROM windlass.jobs WHERE id = ANY ($1::uuid[])
UNION ALL
SELECT id, tenant, status, attempt, total, processed, failed, updated_at FROM windlass.history WHERE id = ANY ($1::uuid[])

-- fragment: few_claimable
-- Whether so few jobs of the filter's queues wait for a claim that all of them can be read.
claimable AS MATERIALIZED (
    SELECT 'queued' = ANY ($3::text[]) AND count(*) <= 5000 AS few
      FROM ((SELECT FROM windlass.jobs WHERE 'queued' = ANY ($3::text[]) AND {in_claim_index} AND {names} LIMIT 5001)
            UNION ALL
            (SELECT FROM windlass.jobs
              WHERE 'queued' = ANY ($3::text[]) AND coalesce(jobs.parked_on, '') <> '' AND {names} LIMIT 5001)) AS waiting
)

-- fragment: aside_newest
-- The rows of the index jobs_aside_newest, by its own condition.
coalesce(jobs.status, 'queued') IN ('failed', 'waiting', 'dead')

-- fragment: in_page
-- A row below the last one of the page before that matches a filter.
-- coalesce and not "$2 IS NULL OR …": an index scan can begin at a comparison with one value; an OR is a filter that
-- reads every page before.
jobs.id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid) AND {where} ORDER BY jobs.id DESC LIMIT $1

-- name: search
-- Find jobs that match a filter, newest first, a page at a time.
--
--   $1 page   $2 begin below this id; null: at the top   $3 … the filter's own
--
-- Ids are UUIDv7: their order is the order of creation, and a page begins below the last id of the page before. The
-- condition comes from store/parts/search.py and holds parameters only.
(SELECT {columns} FROM windlass.jobs WHERE {in_page})
UNION ALL
(SELECT {columns} FROM windlass.history AS jobs WHERE {in_page})
ORDER BY id DESC LIMIT $1

-- name: search_by_state
-- Find jobs as in search, where a filter names states or queues: newest first, a page at a time.
--
--   $1 page   $2 begin below this id; null: at the top   $3 states   $4 … the filter's own, then those of its queues
--
-- Each state is read by its own index, and not by id: the only dead job among a million may be the oldest one. A state
-- that is not asked for costs nothing: its first condition has no column. Up to 5,000 queued jobs are read by the index of
-- claims; more are sought by id. That passes younger jobs of other states: it is slow where each queued job is older than
-- many jobs. OFFSET 0 keeps the planner from going by id nevertheless.
WITH {few_claimable}
(SELECT {columns} FROM windlass.jobs
  WHERE 'failed' = ANY ($3::text[]) AND {aside_newest} AND jobs.status = 'failed' AND {in_page})
UNION ALL
(SELECT {columns} FROM windlass.jobs
  WHERE 'waiting' = ANY ($3::text[]) AND {aside_newest} AND jobs.status = 'waiting' AND {in_page})
UNION ALL
(SELECT {columns} FROM windlass.jobs
  WHERE 'dead' = ANY ($3::text[]) AND {aside_newest} AND jobs.status = 'dead' AND {in_page})
UNION ALL
(SELECT {columns} FROM (SELECT * FROM windlass.jobs WHERE 'running' = ANY ($3::text[]) AND status = 'running' OFFSET 0) AS jobs
  WHERE {in_page})
UNION ALL
(SELECT {columns} FROM windlass.jobs
  WHERE 'queued' = ANY ($3::text[]) AND NOT (SELECT few FROM claimable) AND jobs.status = 'queued' AND {in_page})
UNION ALL
(SELECT {columns} FROM (SELECT * FROM windlass.jobs
          WHERE (SELECT few FROM claimable) AND {in_claim_index} AND {names} OFFSET 0) AS jobs
  WHERE jobs.status = 'queued' AND {in_page})
UNION ALL
(SELECT {columns} FROM (SELECT * FROM windlass.jobs
          WHERE (SELECT few FROM claimable) AND coalesce(jobs.parked_on, '') <> '' AND {names} OFFSET 0) AS jobs
  WHERE jobs.status = 'queued' AND {in_page})
UNION ALL
(SELECT {columns} FROM windlass.history AS jobs
  WHERE 'succeeded' = ANY ($3::text[]) AND jobs.status = 'succeeded' AND {in_page})
UNION ALL
(SELECT {columns} FROM windlass.history AS jobs
  WHERE 'cancelled' = ANY ($3::text[]) AND jobs.status = 'cancelled' AND {in_page})
ORDER BY id DESC LIMIT $1

-- name: search_ids
-- Find jobs as in search, and read only what a bulk action needs of them.
--
--   $1 page   $2 begin below this id; null: at the top   $3 … the filter's own
(SELECT jobs.id, jobs.queue, jobs.type, jobs.status, jobs.followed FROM windlass.jobs WHERE {in_page})
UNION ALL
(SELECT jobs.id, jobs.queue, jobs.type, jobs.status, jobs.followed FROM windlass.history AS jobs WHERE {in_page})
ORDER BY id DESC LIMIT $1

-- name: lock_job
-- Lock a job that has not ended.
--
--   $1 [id]
SELECT id, status
  FROM windlass.jobs
 WHERE id = {id}
   AND status <> 'dead'
   FOR UPDATE

-- name: installation
-- Read the id of this installation.
SELECT id FROM windlass.installation

-- name: wake_idle_workers
-- Notify workers after the commit of an enqueue: once per queue, and only if an idle worker serves it.
--
--   $1 queues
SELECT pg_notify('windlass', wanted.queue)
  FROM unnest($1::text[]) AS wanted (queue)
 WHERE EXISTS (
    SELECT FROM windlass.workers
     WHERE idle AND NOT dead AND (queues IS NULL OR wanted.queue = ANY (queues)))

-- name: jobs_of_worker
-- Read the running jobs of one worker, except those it knows.
--
--   $1 worker   $2 known ids
SELECT {columns} FROM windlass.jobs WHERE jobs.worker = $1 AND jobs.status = 'running' AND jobs.id <> ALL ($2::uuid[])
 ORDER BY jobs.id

-- name: leases_of_worker
-- Read the leases of one worker, except those it knows: `jobs_of_worker` without columns that may be unreadable.
--
--   $1 worker   $2 known ids
SELECT jobs.id, jobs.token, jobs.fence
  FROM windlass.jobs
 WHERE jobs.worker = $1 AND jobs.status = 'running' AND jobs.id <> ALL ($2::uuid[])


-- name: time
-- The database's time, for reads that say when a job is due.
SELECT windlass.now();

-- Jobs: enqueue, find, search.

-- name: enqueue
-- Write new jobs, in the transaction that is open. It has two parameters and built-in functions only, so that it also
-- runs on a caller's own connection, where Windlass registers no functions.
--   ?1 a JSON array of objects   ?2 now, in microseconds
--
-- `input` is an object and `limits` an array, and json_extract gives either as its JSON text. `run_at` is RFC 3339 in
-- UTC with six digits of a second: strftime knows milliseconds only and would round up, so that the fraction is taken
-- as text.
INSERT INTO windlass_jobs (id, tenant, queue, type, priority, input, max_attempts, run_at, key, parent, pipeline, phase,
                           phase_rank, trace, copied_from, follow_ups, followed, status, key_scope, limits,
                           created_at, updated_at)
SELECT json_extract(new.value, '$.id'),
       json_extract(new.value, '$.tenant'),
       json_extract(new.value, '$.queue'),
       json_extract(new.value, '$.type'),
       json_extract(new.value, '$.priority'),
       json_extract(new.value, '$.input'),
       json_extract(new.value, '$.max_attempts'),
       coalesce(CAST(strftime('%s', substr(json_extract(new.value, '$.run_at'), 1, 19)) AS INTEGER) * 1000000
                    + CAST(substr(json_extract(new.value, '$.run_at'), 21, 6) AS INTEGER),
                ?2 + CAST(round(coalesce(json_extract(new.value, '$.delay'), 0) * 1000000) AS INTEGER)),
       json_extract(new.value, '$.key'),
       json_extract(new.value, '$.parent'),
       json_extract(new.value, '$.pipeline'),
       coalesce(json_extract(new.value, '$.phase'), json_extract(new.value, '$.queue')),
       json_extract(new.value, '$.phase_rank'),
       json_extract(new.value, '$.trace'),
       json_extract(new.value, '$.copied_from'),
       json_extract(new.value, '$.follow_ups'),
       json_extract(new.value, '$.followed'),
       json_extract(new.value, '$.status'),
       json_extract(new.value, '$.key_scope'),
       json_extract(new.value, '$.limits'),
       ?2,
       ?2
  FROM json_each(?1) AS new

-- name: find
-- One job, from the jobs or the history. One statement, so one snapshot: a job that is being moved is in one place
-- only.
--   :id
SELECT {columns} FROM windlass_jobs AS jobs WHERE jobs.id = :id
UNION ALL
SELECT {columns} FROM windlass_history AS jobs WHERE jobs.id = :id

-- name: find_many
-- Jobs by their ids, from the jobs and the history.
--   :ids a JSON array
SELECT {columns} FROM windlass_jobs AS jobs WHERE jobs.id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT {columns} FROM windlass_history AS jobs WHERE jobs.id IN (SELECT value FROM json_each(:ids))

-- name: find_brief
-- Jobs by their ids, from the jobs and the history, without input and output.
--   :ids a JSON array
SELECT {brief_columns} FROM windlass_jobs AS jobs WHERE jobs.id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT {brief_columns} FROM windlass_history AS jobs WHERE jobs.id IN (SELECT value FROM json_each(:ids))

-- name: states
-- How far jobs are, by their ids, from the jobs and the history, without their documents.
--   :ids a JSON array
SELECT id, tenant, status, attempt, total, processed, failed, updated_at
  FROM windlass_jobs WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL
SELECT id, tenant, status, attempt, total, processed, failed, updated_at
  FROM windlass_history WHERE id IN (SELECT value FROM json_each(:ids))

-- fragment: aside_newest
-- The rows of the index windlass_jobs_aside_newest.
coalesce(status, '') IN ('failed', 'waiting', 'dead')

-- fragment: in_page
-- A row below the last one of the page before that matches a filter.
-- coalesce and not "?3 IS NULL OR …": an index scan can begin at a comparison with one value; 'g' is above every id.
jobs.id < coalesce(?3, 'g') AND {where} ORDER BY jobs.id DESC LIMIT ?2

-- name: search
-- Jobs that match a filter, newest first, a page at a time. Ids are UUIDv7, so that their order is the order of
-- creation, and a page begins below the last id of the one before. The condition is made by store/parts/search.py and
-- holds no values, only their parameters.
--   ?1 now   ?2 page   ?3 begin below this id (null: at the newest)   ?4 … the filter's own
SELECT * FROM (
    SELECT {columns} FROM windlass_jobs AS jobs WHERE {in_page})
UNION ALL
SELECT * FROM (
    SELECT {columns} FROM windlass_history AS jobs WHERE {in_page})
ORDER BY id DESC LIMIT ?2

-- name: search_by_state
-- Jobs as in search, where a filter names states or queues. Each state is read by its own index, and not by id: the only
-- dead job among a million may be the oldest one. Up to 5,000 queued jobs are read by the index of claims;
-- more are sought by id. That passes younger jobs of other states: it is slow where each queued job is older than many jobs.
-- Which states are asked for is in the LIMIT: SQLite would compare it in WHERE for each row of an index, and 0 reads none.
--   ?1 now   ?2 page   ?3 begin below this id (null: at the newest)   ?4 states, a JSON array
--   ?5 … the filter's own, then those of its queues
WITH claimable AS MATERIALIZED (
    SELECT 'queued' IN (SELECT value FROM json_each(?4)) AND count(*) <= 5000 AS few FROM (
        SELECT * FROM (SELECT 1 FROM windlass_jobs AS jobs
                        WHERE {in_claim_index} AND {names}
                        LIMIT 5001 * ('queued' IN (SELECT value FROM json_each(?4))))
        UNION ALL
        SELECT * FROM (SELECT 1 FROM windlass_jobs AS jobs
                        WHERE coalesce(parked_on, '') <> '' AND {names}
                        LIMIT 5001 * ('queued' IN (SELECT value FROM json_each(?4)))))
)
SELECT * FROM (
    SELECT {columns} FROM windlass_jobs AS jobs
     WHERE {aside_newest} AND jobs.status = 'failed' AND {in_page} * ('failed' IN (SELECT value FROM json_each(?4))))
UNION ALL
SELECT * FROM (
    SELECT {columns} FROM windlass_jobs AS jobs
     WHERE {aside_newest} AND jobs.status = 'waiting' AND {in_page} * ('waiting' IN (SELECT value FROM json_each(?4))))
UNION ALL
SELECT * FROM (
    SELECT {columns} FROM windlass_jobs AS jobs
     WHERE {aside_newest} AND jobs.status = 'dead' AND {in_page} * ('dead' IN (SELECT value FROM json_each(?4))))
UNION ALL
SELECT * FROM (
    SELECT {columns} FROM (SELECT * FROM windlass_jobs WHERE 'running' IN (SELECT value FROM json_each(?4)) AND status = 'running' LIMIT -1 OFFSET 0) AS jobs
     WHERE {in_page})
UNION ALL
SELECT * FROM (
    SELECT {columns} FROM windlass_jobs AS jobs
     WHERE jobs.status = 'queued'
       AND {in_page} * ('queued' IN (SELECT value FROM json_each(?4)) AND NOT (SELECT few FROM claimable)))
UNION ALL
SELECT * FROM (
    SELECT {columns} FROM (SELECT * FROM windlass_jobs AS jobs
             WHERE {in_claim_index} AND {names} LIMIT -(SELECT few FROM claimable) OFFSET 0) AS jobs
     WHERE jobs.status = 'queued' AND {in_page})
UNION ALL
SELECT * FROM (
    SELECT {columns} FROM (SELECT * FROM windlass_jobs AS jobs
             WHERE coalesce(parked_on, '') <> '' AND {names} LIMIT -(SELECT few FROM claimable) OFFSET 0) AS jobs
     WHERE jobs.status = 'queued' AND {in_page})
UNION ALL
SELECT * FROM (
    SELECT {columns} FROM windlass_history AS jobs
     WHERE jobs.status = 'succeeded' AND {in_page} * ('succeeded' IN (SELECT value FROM json_each(?4))))
UNION ALL
SELECT * FROM (
    SELECT {columns} FROM windlass_history AS jobs
     WHERE jobs.status = 'cancelled' AND {in_page} * ('cancelled' IN (SELECT value FROM json_each(?4))))
ORDER BY id DESC LIMIT ?2

-- name: search_ids
-- Jobs as in search, with only what a bulk action needs of them.
--   ?1 now   ?2 page   ?3 begin below this id (null: at the newest)   ?4 … the filter's own
SELECT * FROM (
    SELECT jobs.id, jobs.queue, jobs.type, jobs.status, jobs.followed FROM windlass_jobs AS jobs WHERE {in_page})
UNION ALL
SELECT * FROM (
    SELECT jobs.id, jobs.queue, jobs.type, jobs.status, jobs.followed FROM windlass_history AS jobs WHERE {in_page})
ORDER BY id DESC LIMIT ?2

-- name: lock_job
-- A job that has not ended.
--   ?1 [id]
SELECT id, status FROM windlass_jobs WHERE id IN (SELECT value FROM json_each(?1)) AND status <> 'dead'

-- name: jobs_of_worker
-- The running jobs of one worker, without those in :known.
--   :worker   :known a JSON array of jobs
SELECT {columns}
  FROM windlass_jobs AS jobs
 WHERE jobs.worker = :worker AND jobs.status = 'running' AND jobs.id NOT IN (SELECT value FROM json_each(:known))
 ORDER BY jobs.id

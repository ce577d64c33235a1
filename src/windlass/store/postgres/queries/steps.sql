-- Steps: what earlier runs of a handler left for later ones.

-- name: memory_of_job
-- Read what a job's earlier runs left behind: steps and signals.
--
--   $1 id
SELECT 'step' AS kind, name, value::text FROM windlass.steps WHERE job = $1
UNION ALL
SELECT 'signal', name, payload::text FROM windlass.signals WHERE job = $1

-- name: record_step
-- Write a step's result under the lease. The job's row is locked, so that no rescue comes between.
--
--   $1 id   $2 token   $3 name   $4 value
WITH held AS MATERIALIZED (
    SELECT id FROM windlass.jobs WHERE id = $1::uuid AND token = $2::uuid FOR UPDATE
)
INSERT INTO windlass.steps (job, name, value)
SELECT id, $3::text, $4::json FROM held
    ON CONFLICT (job, name) DO UPDATE SET value = excluded.value, at = excluded.at
RETURNING job

-- name: record_steps
-- Write step results together with a transition. This transaction already holds the rows of their jobs.
--
--   $1 [{job, name, value}]
INSERT INTO windlass.steps (job, name, value)
SELECT job, name, coalesce(value, 'null')
  FROM json_to_recordset(CAST($1 AS json)) AS new (job uuid, name text, value json)
    ON CONFLICT (job, name) DO UPDATE SET value = excluded.value, at = excluded.at

-- name: delete_expired_waits
-- Forget waits that timed out, so that they begin anew: the step that marks the time-out (its name ends in a space)
-- and the deadline of that name.
--
--   $1 [id]
DELETE FROM windlass.steps
 WHERE job = ANY ({ids})
   AND (name LIKE '% '
        OR EXISTS (SELECT FROM windlass.steps AS mark WHERE mark.job = steps.job AND mark.name = steps.name || ' '
                    OFFSET 0))

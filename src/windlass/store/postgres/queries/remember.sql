-- A step's result, under the lease: the job's row is locked, so that no rescue comes between.
--
--   $1 id   $2 token   $3 name   $4 value
WITH held AS MATERIALIZED (
    SELECT id FROM windlass.jobs WHERE id = $1::uuid AND token = $2::uuid FOR UPDATE
)
INSERT INTO windlass.steps (job, name, value)
SELECT id, $3::text, $4::json FROM held
    ON CONFLICT (job, name) DO UPDATE SET value = excluded.value, at = excluded.at
RETURNING job

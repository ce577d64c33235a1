-- Steps: results that earlier attempts of a handler stored for later ones.

-- name: memory_of_job
-- The results of steps that earlier attempts of a job stored, and the signals sent to it.
--   :id
SELECT 'step', name, value FROM windlass_steps WHERE job = :id
UNION ALL
SELECT 'signal', name, payload FROM windlass_signals WHERE job = :id

-- name: record_step
-- Store a step's result, under the lease.
--   :id, :token the lease   :name   :value   :now
INSERT INTO windlass_steps (job, name, value, at)
SELECT id, :name, :value, :now FROM windlass_jobs WHERE id = :id AND token = :token
    ON CONFLICT (job, name) DO UPDATE SET value = excluded.value, at = excluded.at

-- name: record_steps
-- Store the results of steps that come with a transition.
--   ?1 [{job, name, value}]   ?2 now
INSERT INTO windlass_steps (job, name, value, at)
SELECT value ->> 'job', value ->> 'name', value -> 'value', ?2 FROM json_each(?1) WHERE true
    ON CONFLICT (job, name) DO UPDATE SET value = excluded.value, at = excluded.at

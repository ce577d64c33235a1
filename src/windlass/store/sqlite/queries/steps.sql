-- Steps: what earlier runs of a handler left for later ones.

-- name: memory_of_job
-- What a job's earlier runs left behind.   :id
SELECT 'step', name, value FROM windlass_steps WHERE job = :id
UNION ALL
SELECT 'signal', name, payload FROM windlass_signals WHERE job = :id

-- name: record_step
-- A step's result, under the lease.   :id   :token   :name   :value   :now
INSERT INTO windlass_steps (job, name, value, at)
SELECT id, :name, :value, :now FROM windlass_jobs WHERE id = :id AND token = :token
    ON CONFLICT (job, name) DO UPDATE SET value = excluded.value, at = excluded.at

-- name: record_steps
-- Memories written with a transition.   ?1 [{job, name, value}]   ?2 now
INSERT INTO windlass_steps (job, name, value, at)
SELECT value ->> 'job', value ->> 'name', value -> 'value', ?2 FROM json_each(?1) WHERE true
    ON CONFLICT (job, name) DO UPDATE SET value = excluded.value, at = excluded.at

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

-- name: delete_expired_waits
-- A job starts again: its waits that had timed out begin again. Deletes the mark, a step with a name that ends in a
-- space, and the deadline of the same name.
--   ?1 [id]
DELETE FROM windlass_steps
 WHERE job IN (SELECT value FROM json_each(?1))
   AND (name LIKE '% '
        OR EXISTS (SELECT 1 FROM windlass_steps AS mark
                    WHERE mark.job = windlass_steps.job AND mark.name = windlass_steps.name || ' '))

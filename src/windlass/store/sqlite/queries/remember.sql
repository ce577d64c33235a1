-- A step's result, under the lease.   :id   :token   :name   :value   :now
INSERT INTO windlass_steps (job, name, value, at)
SELECT id, :name, :value, :now FROM windlass_jobs WHERE id = :id AND token = :token
    ON CONFLICT (job, name) DO UPDATE SET value = excluded.value, at = excluded.at

-- Keys: unique and idempotency keys, which refuse a second job.

-- name: take_keys
-- Take keys. A key may be taken over when it is free, when its time is up, or when its job has left the states in which
-- it holds the key. Returns the keys that were taken.
--   ?1 [{scope, key, job, states, window, forever, fingerprint}]   ?2 now
DELETE FROM windlass_keys
 WHERE (free OR until <= ?2
        OR EXISTS (SELECT 1 FROM windlass_jobs AS jobs
                    WHERE jobs.id = windlass_keys.job AND windlass_keys.states IS NOT NULL
                      AND jobs.status <> 'dead'
                      AND jobs.status NOT IN (SELECT value FROM json_each(windlass_keys.states))))
   AND (scope, key) IN (SELECT value ->> 'scope', value ->> 'key' FROM json_each(?1))
-- then
INSERT INTO windlass_keys (scope, key, job, states, until, forever, fingerprint)
SELECT value ->> 'scope', value ->> 'key', value ->> 'job', json_extract(value, '$.states'),
       ?2 + CAST(round((value ->> 'window') * 1000000) AS INTEGER), value ->> 'forever', value ->> 'fingerprint'
  FROM json_each(?1)
 WHERE true
    ON CONFLICT (scope, key) DO NOTHING
RETURNING scope, key, job, fingerprint

-- name: key_holders
-- The jobs that hold these keys.
--   ?1 [{scope, key}]
SELECT held.scope, held.key, held.job, held.fingerprint
  FROM json_each(?1) AS wanted
  JOIN windlass_keys AS held ON held.scope = wanted.value ->> 'scope' AND held.key = wanted.value ->> 'key'

-- name: key_holder
-- The job that holds a job's unique key.
--   ?1 [id]
SELECT held.key, held.job
  FROM windlass_jobs AS jobs
  JOIN windlass_keys AS held ON held.scope = jobs.key_scope AND held.key = jobs.key
 WHERE jobs.id IN (SELECT value FROM json_each(?1))

-- name: take_over_keys
-- Nothing to do: `take_keys` takes over what may be taken over, as SQLite has one writer at a time.
SELECT NULL, NULL, NULL, NULL WHERE false

-- name: held_keys
-- Which of these keys refuse a new job: those that `take_keys` would not take over.
--   :keys [{scope, key}]   :now
SELECT held.scope, held.key, held.job
  FROM json_each(:keys) AS wanted
  JOIN windlass_keys AS held ON held.scope = wanted.value ->> 'scope' AND held.key = wanted.value ->> 'key'
 WHERE NOT held.free AND (held.until IS NULL OR held.until > :now)
   AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs
                    WHERE jobs.id = held.job AND held.states IS NOT NULL AND jobs.status <> 'dead'
                      AND jobs.status NOT IN (SELECT value FROM json_each(held.states)))

-- name: retake_keys
-- A job becomes claimable again and takes its key, if the key is still its own or free.
--   ?1 [id]   ?2 now
UPDATE windlass_keys SET job = back.id, free = 0, ended_at = NULL
  FROM (SELECT id, key, key_scope FROM windlass_jobs WHERE id IN (SELECT value FROM json_each(?1))) AS back
 WHERE windlass_keys.scope = back.key_scope AND windlass_keys.key = back.key
   AND (windlass_keys.job = back.id OR windlass_keys.free OR windlass_keys.until <= ?2)
RETURNING windlass_keys.key, windlass_keys.job

-- name: repoint_keys
-- Idempotency keys of jobs that were not written, because another job holds their unique key, lead to that job.
--   ?1 [{scope, key, job}]
UPDATE windlass_keys
   SET job = (SELECT value ->> 'job' FROM json_each(?1)
               WHERE value ->> 'scope' = windlass_keys.scope AND value ->> 'key' = windlass_keys.key)
 WHERE (scope, key) IN (SELECT value ->> 'scope', value ->> 'key' FROM json_each(?1))

-- name: free_keys
-- Jobs ended: their keys are free, unless the key is also held in the state in which the job ended.
--   ?1 [{job, status}]   ?2 now
UPDATE windlass_keys
   SET free = NOT EXISTS (SELECT 1 FROM json_each(?1) AS ended
                           WHERE ended.value ->> 'job' = windlass_keys.job
                             AND ended.value ->> 'status' IN (SELECT value FROM json_each(windlass_keys.states))),
       ended_at = ?2
 WHERE states IS NOT NULL AND job IN (SELECT value ->> 'job' FROM json_each(?1))

-- name: begin_savepoint
-- On a caller's connection: what follows can be undone, while the caller's transaction goes on.
SAVEPOINT windlass_keys

-- name: roll_back_to_savepoint
-- Undo what followed `begin_savepoint`.
ROLLBACK TO SAVEPOINT windlass_keys

-- name: release_savepoint
-- End the savepoint.
RELEASE SAVEPOINT windlass_keys

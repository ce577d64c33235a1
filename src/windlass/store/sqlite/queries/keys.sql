-- Keys that refuse a second job.

-- name: take_keys
-- Take keys, or learn who holds them. A key is taken over when it is free, its time is up, or its job has left the
-- states that were chosen.
--   ?1 [{scope, key, job, states, window, forever, fingerprint}]   ?2 now
DELETE FROM windlass_keys
 WHERE (free OR until <= ?2
        OR EXISTS (SELECT 1 FROM windlass_jobs AS jobs
                    WHERE jobs.id = windlass_keys.job AND windlass_keys.states IS NOT NULL
                      AND jobs.status <> 'dead' AND jobs.status NOT IN (SELECT value FROM json_each(windlass_keys.states))))
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
-- Who holds these keys.   ?1 [{scope, key}]   ?2 now
SELECT held.scope, held.key, held.job, held.fingerprint
  FROM json_each(?1) AS wanted
  JOIN windlass_keys AS held ON held.scope = wanted.value ->> 'scope' AND held.key = wanted.value ->> 'key'

-- name: key_holder
-- Who holds a job's key.   ?1 [id]   ?2 now
SELECT held.key, held.job
  FROM windlass_jobs AS jobs
  JOIN windlass_keys AS held ON held.scope = jobs.key_scope AND held.key = jobs.key
 WHERE jobs.id IN (SELECT value FROM json_each(?1))

-- name: take_over_keys
-- take_keys.sql has taken over what could be.   ?1 [{scope, key, …}]   ?2 now
SELECT NULL, NULL, NULL, NULL WHERE ?1 IS NULL

-- name: retake_keys
-- A job comes back and wants its key, which is its own still, or free again.   ?1 [id]   ?2 now
UPDATE windlass_keys SET job = back.id, free = 0, ended_at = NULL
  FROM (SELECT id, key, key_scope FROM windlass_jobs WHERE id IN (SELECT value FROM json_each(?1))) AS back
 WHERE windlass_keys.scope = back.key_scope AND windlass_keys.key = back.key
   AND (windlass_keys.job = back.id OR windlass_keys.free OR windlass_keys.until <= ?2)
RETURNING windlass_keys.key, windlass_keys.job

-- name: repoint_keys
-- Idempotency keys whose job was refused by another key lead to the job that is there.   ?1 [{scope, key, job}]   ?2 now
UPDATE windlass_keys
   SET job = (SELECT value ->> 'job' FROM json_each(?1)
               WHERE value ->> 'scope' = windlass_keys.scope AND value ->> 'key' = windlass_keys.key)
 WHERE (scope, key) IN (SELECT value ->> 'scope', value ->> 'key' FROM json_each(?1))

-- name: free_keys
-- Keys of jobs that ended: free where the state is none of those the key is held in.   ?1 [{job, status}]   ?2 now
UPDATE windlass_keys
   SET free = NOT EXISTS (SELECT 1 FROM json_each(?1) AS ended
                           WHERE ended.value ->> 'job' = windlass_keys.job
                             AND ended.value ->> 'status' IN (SELECT value FROM json_each(windlass_keys.states))),
       ended_at = ?2
 WHERE states IS NOT NULL AND job IN (SELECT value ->> 'job' FROM json_each(?1))

-- name: delete_expired_keys
-- Waits whose time was up begin anew: the mark, which ends in a space, and the deadline of that name.   ?1 [id]   ?2 now
DELETE FROM windlass_steps
 WHERE job IN (SELECT value FROM json_each(?1))
   AND (name LIKE '% '
        OR EXISTS (SELECT 1 FROM windlass_steps AS mark
                    WHERE mark.job = windlass_steps.job AND mark.name = windlass_steps.name || ' '))

-- name: begin_savepoint
-- On a borrowed connection: what follows can be undone, while the caller's transaction goes on.
SAVEPOINT windlass_keys

-- name: roll_back_to_savepoint
ROLLBACK TO SAVEPOINT windlass_keys

-- name: release_savepoint
RELEASE SAVEPOINT windlass_keys

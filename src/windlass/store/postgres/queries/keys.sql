-- Keys that refuse a second job.

-- name: take_keys
-- Take keys that are not held.
--
--   $1 [{scope, key, job, states, window, forever, fingerprint}]
--
-- The statement waits for a concurrent taker: if its transaction rolls back, this one has the key. A key that is held
-- is not touched, so that the open transaction of a refused enqueue blocks no other enqueue.
INSERT INTO windlass.keys (scope, key, job, states, until, forever, fingerprint)
SELECT new.scope, new.key, new.job,
       CASE WHEN new.states IS NOT NULL THEN ARRAY (SELECT json_array_elements_text(new.states)) END,
       windlass.now() + make_interval(secs => new."window"), new.forever, new.fingerprint
  FROM json_to_recordset(CAST($1 AS json))
       AS new (scope text, key text, job uuid, states json, "window" float8, forever boolean, fingerprint text)
 ORDER BY new.scope, new.key
    ON CONFLICT (scope, key) DO NOTHING
RETURNING scope, key, job, fingerprint

-- name: key_holders
-- Read which jobs hold these keys.
--
--   $1 [{scope, key}]
SELECT keys.scope, keys.key, keys.job, keys.fingerprint
  FROM json_to_recordset(CAST($1 AS json)) AS wanted (scope text, key text)
  JOIN windlass.keys ON keys.scope = wanted.scope AND keys.key = wanted.key

-- name: key_holder
-- Read which job holds a job's key. Runs after `retake_keys`, with a later snapshot.
--
--   $1 [id]
SELECT keys.key, keys.job
  FROM windlass.jobs
  JOIN windlass.keys
    ON (keys.scope, keys.key) BETWEEN (jobs.key_scope, jobs.key) AND (jobs.key_scope, jobs.key)
 WHERE jobs.id = {id}

-- name: take_over_keys
-- Take over keys that are free, are past their time, or belong to a job that has left the chosen states.
--
--   $1 [{scope, key, job, states, window, forever, fingerprint}]
WITH held AS MATERIALIZED (
    SELECT keys.scope, keys.key, new.job, new.states, new."window", new.forever, new.fingerprint
      FROM json_to_recordset(CAST($1 AS json))
           AS new (scope text, key text, job uuid, states json, "window" float8, forever boolean, fingerprint text)
      JOIN windlass.keys ON (keys.scope, keys.key) BETWEEN (new.scope, new.key) AND (new.scope, new.key)
     WHERE keys.free OR keys.until <= windlass.now()
        OR EXISTS (SELECT FROM windlass.jobs
                    WHERE jobs.id = keys.job AND jobs.status <> 'dead' AND NOT jobs.status = ANY (keys.states)
                   OFFSET 0)
     ORDER BY new.scope, new.key
       FOR UPDATE OF keys
)
UPDATE windlass.keys
   SET job = held.job, until = windlass.now() + make_interval(secs => held."window"), forever = held.forever,
       states = CASE WHEN held.states IS NOT NULL THEN ARRAY (SELECT json_array_elements_text(held.states)) END,
       fingerprint = held.fingerprint, free = false, ended_at = NULL
  FROM held
 WHERE (keys.scope, keys.key) BETWEEN (held.scope, held.key) AND (held.scope, held.key)
RETURNING keys.scope, keys.key, keys.job, keys.fingerprint

-- name: held_keys
-- Read which of these keys refuse a new job: those that `take_over_keys` would not take.
--
--   $1 [{scope, key}]
SELECT keys.scope, keys.key, keys.job
  FROM json_to_recordset(CAST($1 AS json)) AS wanted (scope text, key text)
  JOIN windlass.keys ON (keys.scope, keys.key) BETWEEN (wanted.scope, wanted.key) AND (wanted.scope, wanted.key)
 WHERE NOT keys.free AND (keys.until IS NULL OR keys.until > windlass.now())
   AND NOT EXISTS (SELECT FROM windlass.jobs
                    WHERE jobs.id = keys.job AND jobs.status <> 'dead' AND NOT jobs.status = ANY (keys.states)
                   OFFSET 0)

-- name: retake_keys
-- Give a job that comes back its key again, if the key still belongs to it or is free.
--
--   $1 [id]
WITH restored AS MATERIALIZED (
    SELECT id, key, key_scope
      FROM windlass.jobs
     WHERE id = {id}
)
UPDATE windlass.keys SET job = restored.id, free = false, ended_at = NULL
  FROM restored
 WHERE (keys.scope, keys.key) BETWEEN (restored.key_scope, restored.key) AND (restored.key_scope, restored.key)
   AND (keys.job = restored.id OR keys.free OR keys.until <= windlass.now())
RETURNING keys.key, keys.job

-- name: repoint_keys
-- Point idempotency keys at the job that exists, because their own job was refused by another key.
--
--   $1 [{scope, key, job}]
UPDATE windlass.keys SET job = new.job
  FROM json_to_recordset(CAST($1 AS json)) AS new (scope text, key text, job uuid)
 WHERE (keys.scope, keys.key) BETWEEN (new.scope, new.key) AND (new.scope, new.key)

-- name: free_keys
-- Free the keys of jobs that ended, unless the key is held in that state too.
--
--   $1 [{job, status}]
UPDATE windlass.keys
   SET free = NOT ended.status = ANY (keys.states), ended_at = windlass.now()
  FROM json_to_recordset(CAST($1 AS json)) AS ended (job uuid, status text)
 WHERE keys.job = ANY (ARRAY[ended.job]) AND keys.states IS NOT NULL

-- name: begin_savepoint
-- Begin what can be undone on a borrowed connection, while the caller's transaction goes on.
SAVEPOINT windlass_keys

-- name: roll_back_to_savepoint
-- Undo what was written since `begin_savepoint`.
ROLLBACK TO SAVEPOINT windlass_keys

-- name: release_savepoint
-- Keep what was written since `begin_savepoint`.
RELEASE SAVEPOINT windlass_keys

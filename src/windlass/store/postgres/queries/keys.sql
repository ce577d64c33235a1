-- Keys that refuse a second job.

-- name: take_keys
-- Take keys that nobody has. A concurrent taker is waited for: if its transaction rolls back, the key is ours. A key that
-- is held is not touched, so that an open transaction of a refused producer keeps nobody.
--   $1 [{scope, key, job, states, window, forever, fingerprint}]
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
-- Who holds these keys.   $1 [{scope, key}]
SELECT keys.scope, keys.key, keys.job, keys.fingerprint
  FROM json_to_recordset(CAST($1 AS json)) AS wanted (scope text, key text)
  JOIN windlass.keys ON keys.scope = wanted.scope AND keys.key = wanted.key

-- name: key_holder
-- Who holds a job's key: after retake_keys.sql, with a later snapshot.   $1 [id]
SELECT keys.key, keys.job
  FROM windlass.jobs
  JOIN windlass.keys
    ON (keys.scope, keys.key) BETWEEN (jobs.key_scope, jobs.key) AND (jobs.key_scope, jobs.key)
 WHERE jobs.id = (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value))

-- name: take_over_keys
-- Take over keys that are free, whose time is up, or whose job has left the states that were chosen.
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

-- name: retake_keys
-- A job comes back and wants its key, which is its own still, or free again.   $1 [id]
WITH back AS MATERIALIZED (
    SELECT id, key, key_scope
      FROM windlass.jobs
     WHERE id = (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value))
)
UPDATE windlass.keys SET job = back.id, free = false, ended_at = NULL
  FROM back
 WHERE (keys.scope, keys.key) BETWEEN (back.key_scope, back.key) AND (back.key_scope, back.key)
   AND (keys.job = back.id OR keys.free OR keys.until <= windlass.now())
RETURNING keys.key, keys.job

-- name: repoint_keys
-- Idempotency keys whose job was refused by another key lead to the job that is there.   $1 [{scope, key, job}]
UPDATE windlass.keys SET job = new.job
  FROM json_to_recordset(CAST($1 AS json)) AS new (scope text, key text, job uuid)
 WHERE (keys.scope, keys.key) BETWEEN (new.scope, new.key) AND (new.scope, new.key)

-- name: free_keys
-- Keys of jobs that ended: free where the state is none of those the key is held in.   $1 [{job, status}]
UPDATE windlass.keys
   SET free = NOT ended.status = ANY (keys.states), ended_at = windlass.now()
  FROM json_to_recordset(CAST($1 AS json)) AS ended (job uuid, status text)
 WHERE keys.job = ANY (ARRAY[ended.job]) AND keys.states IS NOT NULL

-- name: delete_expired_keys
-- Waits whose time was up begin anew: the mark, which ends in a space, and the deadline of that name.   $1 [id]
DELETE FROM windlass.steps
 WHERE job = ANY (ARRAY (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)))
   AND (name LIKE '% '
        OR EXISTS (SELECT FROM windlass.steps AS mark WHERE mark.job = steps.job AND mark.name = steps.name || ' '
                    OFFSET 0))

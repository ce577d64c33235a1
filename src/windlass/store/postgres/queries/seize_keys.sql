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

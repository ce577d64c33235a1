-- Take keys, or learn who holds them. A concurrent holder is waited for: if its transaction rolls back, the key is ours.
-- A key is taken over when it is free, its time is up, or its job has left the states that were chosen.   $1 [{scope, key, job, states, window, forever, fingerprint}]
INSERT INTO windlass.keys AS keys (scope, key, job, states, until, forever, fingerprint)
SELECT new.scope, new.key, new.job,
       CASE WHEN new.states IS NOT NULL THEN ARRAY (SELECT json_array_elements_text(new.states)) END,
       windlass.now() + make_interval(secs => new."window"), new.forever, new.fingerprint
  FROM json_to_recordset(CAST($1 AS json))
       AS new (scope text, key text, job uuid, states json, "window" float8, forever boolean, fingerprint text)
 ORDER BY new.scope, new.key
    ON CONFLICT (scope, key) DO UPDATE
   SET (job, states, until, forever, fingerprint, free, ended_at) = (
        SELECT CASE WHEN taken THEN excluded.job ELSE keys.job END,
               CASE WHEN taken THEN excluded.states ELSE keys.states END,
               CASE WHEN taken THEN excluded.until ELSE keys.until END,
               CASE WHEN taken THEN excluded.forever ELSE keys.forever END,
               CASE WHEN taken THEN excluded.fingerprint ELSE keys.fingerprint END,
               keys.free AND NOT taken,
               CASE WHEN taken THEN NULL ELSE keys.ended_at END
          FROM (SELECT keys.free OR coalesce(keys.until <= windlass.now(), false)
                       OR EXISTS (SELECT FROM windlass.jobs
                                   WHERE jobs.id = keys.job AND jobs.status <> 'dead'
                                     AND NOT jobs.status = ANY (keys.states)))
               AS verdict (taken))
RETURNING keys.scope, keys.key, keys.job, keys.fingerprint

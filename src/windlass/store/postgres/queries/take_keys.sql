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

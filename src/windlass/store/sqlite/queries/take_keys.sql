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

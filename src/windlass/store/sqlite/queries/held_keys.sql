-- Who holds these keys.   ?1 [{scope, key}]   ?2 now
SELECT held.scope, held.key, held.job, held.fingerprint
  FROM json_each(?1) AS wanted
  JOIN windlass_keys AS held ON held.scope = wanted.value ->> 'scope' AND held.key = wanted.value ->> 'key'

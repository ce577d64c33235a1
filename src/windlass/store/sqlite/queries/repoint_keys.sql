-- Idempotency keys whose job was refused by another key lead to the job that is there.   ?1 [{scope, key, job}]   ?2 now
UPDATE windlass_keys
   SET job = (SELECT value ->> 'job' FROM json_each(?1)
               WHERE value ->> 'scope' = windlass_keys.scope AND value ->> 'key' = windlass_keys.key)
 WHERE (scope, key) IN (SELECT value ->> 'scope', value ->> 'key' FROM json_each(?1))

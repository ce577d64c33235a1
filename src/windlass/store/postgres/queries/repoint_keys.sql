-- Idempotency keys whose job was refused by another key lead to the job that is there.   $1 [{scope, key, job}]
UPDATE windlass.keys SET job = new.job
  FROM json_to_recordset(CAST($1 AS json)) AS new (scope text, key text, job uuid)
 WHERE (keys.scope, keys.key) BETWEEN (new.scope, new.key) AND (new.scope, new.key)

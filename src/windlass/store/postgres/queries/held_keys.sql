-- Who holds these keys.   $1 [{scope, key}]
SELECT keys.scope, keys.key, keys.job, keys.fingerprint
  FROM json_to_recordset(CAST($1 AS json)) AS wanted (scope text, key text)
  JOIN windlass.keys ON keys.scope = wanted.scope AND keys.key = wanted.key

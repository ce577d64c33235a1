-- Who holds a job's key: after retake_keys.sql, with a later snapshot.   $1 [id]
SELECT keys.key, keys.job
  FROM windlass.jobs
  JOIN windlass.keys
    ON (keys.scope, keys.key) BETWEEN (jobs.key_scope, jobs.key) AND (jobs.key_scope, jobs.key)
 WHERE jobs.id = (SELECT value::uuid FROM json_array_elements_text(CAST($1 AS json)) AS ids (value))

-- Whether a job waits for this very signal.   $1 [{job, name}]
SELECT waits.job
  FROM windlass.waits
  JOIN json_to_recordset(CAST($1 AS json)) AS sent (job uuid, name text)
    ON waits.job = ANY (ARRAY[sent.job]) AND waits.signal = sent.name

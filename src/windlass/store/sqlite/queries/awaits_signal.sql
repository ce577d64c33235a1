-- Whether a job waits for this very signal.   ?1 [{job, name}]   ?2 now
SELECT waits.job
  FROM json_each(?1) AS sent
  JOIN windlass_waits AS waits ON waits.job = sent.value ->> 'job' AND waits.signal = sent.value ->> 'name'

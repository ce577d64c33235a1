-- The keys at which jobs hold slots, of those that hold any.   :ids a JSON array
SELECT jobs.id, jobs.limits
  FROM json_each(:ids) AS held
  JOIN windlass_jobs AS jobs ON jobs.id = held.value
 WHERE jobs.limits IS NOT NULL

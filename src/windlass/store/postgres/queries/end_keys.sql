-- Keys of jobs that ended: free where the state is none of those the key is held in.   $1 [{job, status}]
UPDATE windlass.keys
   SET free = NOT ended.status = ANY (keys.states), ended_at = windlass.now()
  FROM json_to_recordset(CAST($1 AS json)) AS ended (job uuid, status text)
 WHERE keys.job = ANY (ARRAY[ended.job]) AND keys.states IS NOT NULL

-- Keys of jobs that ended: free where the state is none of those the key is held in.   ?1 [{job, status}]   ?2 now
UPDATE windlass_keys
   SET free = NOT EXISTS (SELECT 1 FROM json_each(?1) AS ended
                           WHERE ended.value ->> 'job' = windlass_keys.job
                             AND ended.value ->> 'status' IN (SELECT value FROM json_each(windlass_keys.states))),
       ended_at = ?2
 WHERE states IS NOT NULL AND job IN (SELECT value ->> 'job' FROM json_each(?1))

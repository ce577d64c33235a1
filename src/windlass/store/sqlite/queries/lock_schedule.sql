-- One schedule, for whoever changes it: the transaction has the file. The columns of schedules.sql.   ?1 [name]   ?2 now
SELECT name, declared, edited, edited_by, paused, paused_by, paused_at, reason, next_at, last_at, last_job, ?2
  FROM windlass_schedules
 WHERE name = ?1 ->> 0

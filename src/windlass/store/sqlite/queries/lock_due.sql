-- One schedule that is due, for whoever fires it: the transaction has the file. The columns of schedules.sql, and the
-- last tick that was noted, and whether the clock was set back since.   ?1 [name]   ?2 now
SELECT name, declared, edited, edited_by, paused, paused_by, paused_at, reason, next_at, last_at, last_job, ?2,
       (SELECT max(at) FROM windlass_ticks
         WHERE windlass_ticks.schedule = windlass_schedules.name AND outcome <> 'by hand'),
       max(updated_at, coalesce(last_at, 0)) > ?2 + 3600000000
  FROM windlass_schedules
 WHERE name = ?1 ->> 0 AND NOT paused
   AND (next_at <= ?2 OR max(updated_at, coalesce(last_at, 0)) > ?2 + 3600000000)

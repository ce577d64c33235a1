-- Schedules, by name or all of them. Times are microseconds since the epoch.   ?1 [name]   ?2 now
SELECT name, declared, edited, edited_by, paused, paused_by, paused_at, reason, next_at, last_at, last_job, ?2
  FROM windlass_schedules
 WHERE ?1 ->> 0 IS NULL OR name = ?1 ->> 0
 ORDER BY name

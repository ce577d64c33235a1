-- Seconds until these schedules tick; those that are paused, or never tick again, are left out.   ?1 [name]   ?2 now
SELECT name, (next_at - ?2) / 1000000.0
  FROM windlass_schedules
 WHERE name IN (SELECT value FROM json_each(?1)) AND NOT paused AND next_at IS NOT NULL
 ORDER BY next_at

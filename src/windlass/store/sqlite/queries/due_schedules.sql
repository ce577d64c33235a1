-- Seconds until these schedules tick; those that are paused, or never tick again, are left out. One that changed or ticked
-- more than an hour in the future of the clock is due: it has to be turned back (turn_back.sql).   ?1 [name]   ?2 now
SELECT name, iif(max(updated_at, coalesce(last_at, 0)) > ?2 + 3600000000, 0.0, (next_at - ?2) / 1000000.0)
  FROM windlass_schedules
 WHERE name IN (SELECT value FROM json_each(?1)) AND NOT paused AND next_at IS NOT NULL
 ORDER BY next_at

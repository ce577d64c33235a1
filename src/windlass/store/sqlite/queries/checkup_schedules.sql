-- Schedules whose next tick should have fired long ago.   :now   :slack microseconds that are not long
SELECT name, (:now - next_at) / 1000000.0 AS late
  FROM windlass_schedules
 WHERE NOT paused AND next_at < :now - :slack
 ORDER BY next_at, name

-- Schedules whose next tick should have fired long ago.   $1 seconds that are not long
SELECT name, extract(epoch FROM windlass.now() - next_at)::float8 AS late
  FROM windlass.schedules
 WHERE NOT paused AND next_at < windlass.now() - make_interval(secs => $1::float8)
 ORDER BY next_at, name

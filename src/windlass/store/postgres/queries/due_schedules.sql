-- Seconds until these schedules tick; those that are paused, or never tick again, are left out.   $1 [name]
SELECT name, extract(epoch FROM next_at - windlass.now())::float8
  FROM windlass.schedules
 WHERE name IN (SELECT json_array_elements_text(CAST($1 AS json))) AND NOT paused AND next_at IS NOT NULL
 ORDER BY next_at

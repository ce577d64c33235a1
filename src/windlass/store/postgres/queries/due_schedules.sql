-- Seconds until these schedules tick; those that are paused, or never tick again, are left out. One that changed or ticked
-- more than an hour in the future of the clock is due: it has to be turned back (turn_back.sql).   $1 [name]
SELECT name, CASE WHEN greatest(updated_at, last_at) > windlass.now() + interval '1 hour' THEN 0.0
                  ELSE extract(epoch FROM next_at - windlass.now())::float8 END
  FROM windlass.schedules
 WHERE name IN (SELECT json_array_elements_text(CAST($1 AS json))) AND NOT paused AND next_at IS NOT NULL
 ORDER BY next_at

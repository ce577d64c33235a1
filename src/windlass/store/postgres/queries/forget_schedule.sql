-- Forget a schedule; what became of its ticks passes with the history.   $1 [name]
DELETE FROM windlass.schedules WHERE name = CAST($1 AS json) ->> 0 RETURNING name

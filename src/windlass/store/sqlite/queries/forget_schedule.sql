-- Forget a schedule; what became of its ticks passes with the history.   ?1 [name]   ?2 now
DELETE FROM windlass_schedules WHERE name = ?1 ->> 0 RETURNING name

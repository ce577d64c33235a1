-- The clock was set back: a schedule goes on with its next tick from now. What was noted of ticks in the future of the clock
-- is forgotten, or they could not fire when their time comes.   ?1 [{name, next}], in microseconds since the epoch   ?2 now
DELETE FROM windlass_ticks WHERE schedule = ?1 ->> '$[0].name' AND at > ?2 AND outcome <> 'by hand'
-- then
UPDATE windlass_schedules
   SET next_at = ?1 ->> '$[0].next', last_at = iif(last_at <= ?2, last_at, NULL), updated_at = ?2
 WHERE name = ?1 ->> '$[0].name'

-- Move a schedule on from a tick. The tick belongs to whoever changes the row, and to nobody else.
--   ?1 [{name, old, new}], in microseconds since the epoch   ?2 now
UPDATE windlass_schedules
   SET next_at = ?1 ->> '$[0].new', updated_at = ?2
 WHERE name = ?1 ->> '$[0].name' AND NOT paused AND next_at = ?1 ->> '$[0].old'
RETURNING name

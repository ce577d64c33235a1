-- What an operator changed of a schedule.
--   ?1 [{name, edited, edited_by, paused, paused_by, reason, next}], `next` in microseconds since the epoch   ?2 now
UPDATE windlass_schedules
   SET edited = CASE WHEN ?1 ->> '$[0].edited' IS NULL THEN NULL ELSE ?1 -> '$[0].edited' END,
       edited_by = ?1 ->> '$[0].edited_by',
       paused = ?1 ->> '$[0].paused', paused_by = ?1 ->> '$[0].paused_by', reason = ?1 ->> '$[0].reason',
       paused_at = CASE WHEN ?1 ->> '$[0].paused' THEN coalesce(paused_at, ?2) END,
       next_at = ?1 ->> '$[0].next', updated_at = ?2
 WHERE name = ?1 ->> '$[0].name'

-- What an operator changed of a schedule that is locked.
--   $1 [{name, edited, edited_by, paused, paused_by, reason, next}], `next` in microseconds since the epoch
UPDATE windlass.schedules
   SET edited = new.edited, edited_by = new.edited_by,
       paused = new.paused, paused_by = new.paused_by, reason = new.reason,
       paused_at = CASE WHEN new.paused THEN coalesce(schedules.paused_at, windlass.now()) END,
       next_at = timestamptz 'epoch' + new.next * interval '1 microsecond', updated_at = windlass.now()
  FROM json_to_recordset(CAST($1 AS json))
       AS new (name text, edited json, edited_by text, paused boolean, paused_by text, reason text, next bigint)
 WHERE schedules.name = new.name

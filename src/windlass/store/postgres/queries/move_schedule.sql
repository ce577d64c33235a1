-- Move a schedule on from a tick. The tick belongs to whoever changes the row, and to nobody else.
--   $1 [{name, old, new}], in microseconds since the epoch
UPDATE windlass.schedules
   SET next_at = timestamptz 'epoch' + moved.new * interval '1 microsecond', updated_at = windlass.now()
  FROM json_to_recordset(CAST($1 AS json)) AS moved (name text, old bigint, new bigint)
 WHERE schedules.name = moved.name AND NOT schedules.paused
   AND schedules.next_at = timestamptz 'epoch' + moved.old * interval '1 microsecond'
RETURNING schedules.name

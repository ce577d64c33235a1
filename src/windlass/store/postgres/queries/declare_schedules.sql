-- What a program says about its schedules. A timetable that has not changed, or that was edited over, leaves the next
-- tick where it is; `next` is for the others. In order of names, as two programs may declare the same ones.
--   $1 [{name, declared, next}]
INSERT INTO windlass.schedules (name, declared, next_at)
SELECT name, declared, timestamptz 'epoch' + next * interval '1 microsecond'
  FROM json_to_recordset(CAST($1 AS json)) AS new (name text, declared json, next bigint)
 ORDER BY name
    ON CONFLICT (name) DO UPDATE
   SET declared = excluded.declared,
       next_at = CASE WHEN schedules.declared ->> 'timing' = excluded.declared ->> 'timing'
                        OR schedules.edited ->> 'timing' IS NOT NULL
                      THEN schedules.next_at ELSE excluded.next_at END,
       declared_at = windlass.now(), updated_at = windlass.now()
 WHERE schedules.declared::text IS DISTINCT FROM excluded.declared::text

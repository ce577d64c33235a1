-- What a program says about its schedules. A timetable that has not changed, or that was edited over, leaves the next
-- tick where it is; `next` is for the others.   ?1 [{name, declared, next}]   ?2 now
INSERT INTO windlass_schedules (name, declared, next_at, declared_at, updated_at)
SELECT new.value ->> 'name', new.value -> 'declared', new.value ->> 'next', ?2, ?2
  FROM json_each(?1) AS new
 WHERE true
    ON CONFLICT (name) DO UPDATE
   SET declared = excluded.declared,
       next_at = CASE WHEN windlass_schedules.declared -> 'timing' = excluded.declared -> 'timing'
                        OR windlass_schedules.edited ->> 'timing' IS NOT NULL
                      THEN windlass_schedules.next_at ELSE excluded.next_at END,
       declared_at = ?2, updated_at = ?2
 WHERE windlass_schedules.declared <> excluded.declared

-- Memories written with a transition.   ?1 [{job, name, value}]   ?2 now
INSERT INTO windlass_steps (job, name, value, at)
SELECT value ->> 'job', value ->> 'name', value -> 'value', ?2 FROM json_each(?1) WHERE true
    ON CONFLICT (job, name) DO UPDATE SET value = excluded.value, at = excluded.at

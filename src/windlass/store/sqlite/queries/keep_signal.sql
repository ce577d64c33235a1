-- The first signal of a name is kept.   ?1 [{job, name, payload}]   ?2 now
INSERT INTO windlass_signals (job, name, payload, at)
SELECT value ->> 'job', value ->> 'name', value -> 'payload', ?2 FROM json_each(?1) WHERE true
    ON CONFLICT (job, name) DO NOTHING
RETURNING job

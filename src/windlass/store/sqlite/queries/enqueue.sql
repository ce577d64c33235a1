-- New jobs, in whatever transaction this runs. Two parameters and built-in functions only, so that it also runs on a
-- caller's own connection, where nothing could be registered.
--
--   ?1 a JSON array of objects   ?2 now, in microseconds
--
-- `input` is an object and `limits` an array, and json_extract gives either as its JSON text. `run_at` is RFC 3339 in
-- UTC with six digits of a second: strftime knows milliseconds only and would round up, so that the fraction is taken
-- as text.
INSERT INTO windlass_jobs (id, tenant, queue, type, priority, input, max_attempts, run_at, key, parent, pipeline, phase,
                           phase_rank, trace, copied_from, consequences, followed, status, key_scope, limits,
                           created_at, updated_at)
SELECT json_extract(new.value, '$.id'),
       json_extract(new.value, '$.tenant'),
       json_extract(new.value, '$.queue'),
       json_extract(new.value, '$.type'),
       json_extract(new.value, '$.priority'),
       json_extract(new.value, '$.input'),
       json_extract(new.value, '$.max_attempts'),
       coalesce(CAST(strftime('%s', substr(json_extract(new.value, '$.run_at'), 1, 19)) AS INTEGER) * 1000000
                    + CAST(substr(json_extract(new.value, '$.run_at'), 21, 6) AS INTEGER),
                ?2 + CAST(round(coalesce(json_extract(new.value, '$.delay'), 0) * 1000000) AS INTEGER)),
       json_extract(new.value, '$.key'),
       json_extract(new.value, '$.parent'),
       json_extract(new.value, '$.pipeline'),
       coalesce(json_extract(new.value, '$.phase'), json_extract(new.value, '$.queue')),
       json_extract(new.value, '$.phase_rank'),
       json_extract(new.value, '$.trace'),
       json_extract(new.value, '$.copied_from'),
       json_extract(new.value, '$.consequences'),
       json_extract(new.value, '$.followed'),
       json_extract(new.value, '$.status'),
       json_extract(new.value, '$.key_scope'),
       json_extract(new.value, '$.limits'),
       ?2,
       ?2
  FROM json_each(?1) AS new

-- New jobs, in whatever transaction this runs: one JSON array as the only parameter, so that every driver can carry
-- it (asyncpg, psycopg, SQLAlchemy), whatever its placeholders look like. Statement time: a delay inside a long
-- transaction counts from this call.
INSERT INTO windlass.jobs (id, tenant, queue, type, priority, input, max_attempts, run_at, key, parent, pipeline,
                           phase, phase_rank, trace, copied_from, consequences, followed, status, key_scope, limits)
SELECT new.id, new.tenant, new.queue, new.type, new.priority, new.input, new.max_attempts,
       coalesce(new.run_at, windlass.now() + make_interval(secs => coalesce(new.delay, 0))),
       new.key, new.parent, new.pipeline, coalesce(new.phase, new.queue), new.phase_rank, new.trace, new.copied_from,
       new.consequences, new.followed, new.status, new.key_scope,
       CASE WHEN new.limits IS NOT NULL THEN ARRAY (SELECT json_array_elements_text(new.limits)) END
  FROM json_to_recordset(CAST($1 AS json))
       AS new (id uuid, tenant text, queue text, type text, priority int, input json, max_attempts int,
               run_at timestamptz, delay float8, key text, parent uuid, pipeline text, phase text, phase_rank int,
               trace text, copied_from uuid, consequences json, followed boolean, status text,
               key_scope text, limits json)

-- How many leases a worker says it holds, told with its beat: `windlass doctor` compares it with the jobs that name it. A
-- job that its worker forgot would run for ever, because its worker is alive.
ALTER TABLE windlass.workers ADD COLUMN held integer NOT NULL DEFAULT 0;
ALTER TABLE windlass.workers ADD COLUMN held_at timestamptz;

-- What is remembered of another shape than ours (a row written by hand) is kept as the first of the attempts: it must not
-- keep a job from its end, or the jobs of a dead worker from their rescue.
CREATE OR REPLACE FUNCTION windlass.remember(attempts json, entry json) RETURNS json LANGUAGE sql IMMUTABLE
AS $$
    SELECT json_agg(element ORDER BY place)
      FROM (SELECT element, place
              FROM json_array_elements(
                       CASE WHEN attempts IS NULL OR json_typeof(attempts) = 'null' THEN '[]'::json
                            WHEN json_typeof(attempts) = 'array' THEN attempts
                            ELSE json_build_array(attempts) END) WITH ORDINALITY AS past (element, place)
            UNION ALL
            SELECT entry, 1000000
             ORDER BY place DESC
             LIMIT 100) AS kept (element, place)
$$;

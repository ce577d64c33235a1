, back AS MATERIALIZED (
    -- As in release.sql, in the statement that ends the jobs: one round trip. What they held is counted when everything
    -- else is written, so that the turnstiles are locked for no longer than they must be; and in the order of their index,
    -- as an engine's session reads them.
    SELECT jsonb_object_agg(held.key, n) AS slots, array_agg(held.key) AS keys
      FROM (SELECT slot.key, count(*) AS n FROM kept, unnest(kept.limits) AS slot (key) GROUP BY slot.key) AS held
), released AS (
    UPDATE windlass.turnstiles
       SET used = CASE WHEN counted THEN greatest(0, used - ((SELECT slots FROM back) ->> key)::int) ELSE used END,
           crowded = crowded AND used > ((SELECT slots FROM back) ->> key)::int, touched_at = windlass.now()
     WHERE key = ANY ((SELECT keys FROM back)::text[]) AND most IS NOT NULL
 RETURNING key, parked
)

-- What a program says about its limits and rates; keys in use learn it too.   $1 [{name, most, period, burst}]
WITH new AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS new (name text, most int, period float8, burst int)
), declared AS (
    INSERT INTO windlass.limits (name, most, period, burst)
    SELECT name, most, period, burst FROM new ORDER BY name
        ON CONFLICT (name) DO UPDATE
       SET most = excluded.most, period = excluded.period, burst = excluded.burst, declared_at = windlass.now()
     WHERE (limits.most, limits.period, limits.burst) IS DISTINCT FROM (excluded.most, excluded.period, excluded.burst)
 RETURNING name, most, period, burst
), keys AS MATERIALIZED (
    SELECT turnstiles.key, declared.most, declared.period, declared.burst
      FROM declared
      JOIN windlass.turnstiles USING (name)
     ORDER BY turnstiles.key
       FOR UPDATE OF turnstiles
)
UPDATE windlass.turnstiles
   SET most = keys.most, period = keys.period, burst = keys.burst,
       -- A rate that becomes a limit is closed until those who run are counted.
       used = CASE WHEN keys.most IS NULL THEN 0
                   WHEN turnstiles.most IS NOT NULL AND turnstiles.counted THEN turnstiles.used
                   ELSE keys.most END,
       counted = keys.most IS NULL OR turnstiles.most IS NOT NULL AND turnstiles.counted
  FROM keys
 WHERE turnstiles.key = keys.key

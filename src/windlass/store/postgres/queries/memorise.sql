-- Memories written with a transition, whose row this transaction holds.   $1 [{job, name, value}]
INSERT INTO windlass.steps (job, name, value)
SELECT job, name, coalesce(value, 'null') FROM json_to_recordset(CAST($1 AS json)) AS new (job uuid, name text, value json)
    ON CONFLICT (job, name) DO UPDATE SET value = excluded.value, at = excluded.at

-- The first signal of a name is kept; a JSON null comes out of the record as none.   $1 [{job, name, payload}]
INSERT INTO windlass.signals (job, name, payload)
SELECT job, name, coalesce(payload, 'null') FROM json_to_recordset(CAST($1 AS json)) AS new (job uuid, name text, payload json)
    ON CONFLICT (job, name) DO NOTHING
RETURNING job

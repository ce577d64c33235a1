-- A tenant's weight; a row where it is another one than before.   $1 [{name, weight}]
INSERT INTO windlass.tenants (name, weight)
SELECT name, weight FROM json_to_recordset(CAST($1 AS json)) AS new (name text, weight float8)
    ON CONFLICT (name) DO UPDATE SET weight = excluded.weight WHERE tenants.weight <> excluded.weight
RETURNING name

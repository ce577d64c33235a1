-- A tenant's weight; a row where it is another one than before.   ?1 [{name, weight}]   ?2 now
INSERT INTO windlass_tenants (name, weight)
SELECT value ->> 'name', value ->> 'weight' FROM json_each(?1)
 WHERE true
    ON CONFLICT (name) DO UPDATE SET weight = excluded.weight WHERE weight <> excluded.weight
RETURNING name

-- Names under which a job finds others.   $1 [{job, name, target, place}]
INSERT INTO windlass.links (job, name, target, place)
SELECT job, name, target, place
  FROM json_to_recordset(CAST($1 AS json)) AS new (job uuid, name text, target uuid, place int)
    ON CONFLICT (job, name) DO UPDATE SET target = excluded.target, place = excluded.place

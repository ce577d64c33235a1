-- Names under which a job finds others.   ?1 [{job, name, target, place}]   ?2 now
INSERT INTO windlass_links (job, name, target, place, at)
SELECT value ->> 'job', value ->> 'name', value ->> 'target', value ->> 'place', ?2 FROM json_each(?1) WHERE true
    ON CONFLICT (job, name) DO UPDATE SET target = excluded.target, place = excluded.place

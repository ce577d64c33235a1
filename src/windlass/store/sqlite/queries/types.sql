-- The job types and pipelines that workers announce.

-- name: announce_types
-- Write the types of a program; the last announcement of a name counts.
--   ?1 [{name, type, document}]   ?2 now
INSERT INTO windlass_types (name, type, document, announced_at)
SELECT value ->> 'name', value ->> 'type', value ->> 'document', ?2
  FROM json_each(?1)
 WHERE true
    ON CONFLICT (name) DO UPDATE
   SET type = excluded.type, document = excluded.document, announced_at = excluded.announced_at

-- name: types
-- List the announced types of these names, or all of them.
--   ?1 [names]; empty: all
SELECT name, document, announced_at / 1000000.0
  FROM windlass_types
 WHERE json_array_length(?1) = 0 OR name IN (SELECT value FROM json_each(?1))
 ORDER BY name

-- name: prune_types
-- Delete a page of types that no worker has announced for long, and that no worker's row lists. Workers announce at
-- their start only, and may run for longer than the history is kept.
--   ?1 history in microseconds   ?2 now   ?3 page
DELETE FROM windlass_types
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_types AS old
         WHERE old.announced_at < ?2 - ?1
           AND NOT EXISTS (SELECT 1 FROM windlass_workers AS workers, json_each(workers.types) AS listed
                            WHERE listed.value = old.type)
         LIMIT ?3)

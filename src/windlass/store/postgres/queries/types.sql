-- The job types and pipelines that workers announce.

-- name: announce_types
-- Write the types of a program; the last announcement of a name counts. Sorted: two workers then cannot deadlock.
--
--   $1 [{name, type, document}]
INSERT INTO windlass.types (name, type, document)
SELECT name, type, CAST(document AS json)
  FROM json_to_recordset(CAST($1 AS json)) AS new (name text, type text, document text)
 ORDER BY name
    ON CONFLICT (name) DO UPDATE
   SET type = excluded.type, document = excluded.document, announced_at = windlass.now()

-- name: types
-- List the announced types of these names, or all of them.
--
--   $1 [names]; empty: all
SELECT name, document::text, extract(epoch FROM announced_at)::float8
  FROM windlass.types
 WHERE json_array_length(CAST($1 AS json)) = 0
    OR name = ANY (ARRAY (SELECT json_array_elements_text(CAST($1 AS json))))
 ORDER BY name

-- name: prune_types
-- Delete a page of types that no worker has announced for long, and that no worker's row lists. Workers announce at
-- their start only, and may run for longer than the history is kept.
--
--   $1 age in seconds   $2 page
WITH old AS (
    DELETE FROM windlass.types
     WHERE name = ANY (ARRAY (
            SELECT types.name
              FROM windlass.types
             WHERE types.announced_at < windlass.now() - make_interval(secs => $1::float8)
               AND NOT EXISTS (SELECT FROM windlass.workers WHERE types.type = ANY (workers.types) OFFSET 0)
             LIMIT $2::int))
       -- Checked again under the row's lock: a worker may have announced it since.
       AND announced_at < windlass.now() - make_interval(secs => $1::float8)
 RETURNING 1
)
SELECT count(*) FROM old

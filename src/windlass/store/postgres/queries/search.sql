-- Jobs that match a filter, newest first, a page at a time: ids are UUIDv7, so that their order is the order of creation
-- and a page begins below the last id of the one before. `{where}` comes from store/parts/search.py and holds parameters only.
--
--   $1 page   $2 begin below this id (null: at the top)   $3 … the filter's own
--
-- coalesce and not "$2 IS NULL OR …": a comparison with one value is where an index scan begins, an OR is a filter that
-- walks over every page before.
(SELECT {columns} FROM windlass.jobs
  WHERE jobs.id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid) AND {where}
  ORDER BY jobs.id DESC LIMIT $1)
UNION ALL
(SELECT {columns} FROM windlass.history AS jobs
  WHERE jobs.id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid) AND {where}
  ORDER BY jobs.id DESC LIMIT $1)
ORDER BY id DESC LIMIT $1

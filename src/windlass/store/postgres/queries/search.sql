-- Jobs that match a filter, newest first, a page at a time: ids are UUIDv7, so that their order is the order of creation
-- and a page begins below the last id of the one before. `{where}` comes from store/search.py and holds parameters only.
--
--   $1 page   $2 begin below this id (null: at the top)   $3 … the filter's own
(SELECT {columns} FROM windlass.jobs
  WHERE ($2::uuid IS NULL OR jobs.id < $2::uuid) AND {where}
  ORDER BY jobs.id DESC LIMIT $1)
UNION ALL
(SELECT {columns} FROM windlass.history AS jobs
  WHERE ($2::uuid IS NULL OR jobs.id < $2::uuid) AND {where}
  ORDER BY jobs.id DESC LIMIT $1)
ORDER BY id DESC LIMIT $1

-- Jobs that match a filter, newest first, a page at a time: ids are UUIDv7, so that their order is the order of creation
-- and a page begins below the last id of the one before. `{where}` comes from store/parts/search.py and holds parameters only.
--
--   ?1 now   ?2 page   ?3 begin below this id (null: at the top)   ?4 … the filter's own
--
-- coalesce and not "?3 IS NULL OR …": a comparison with one value is where an index scan begins; 'g' is above every id.
SELECT * FROM (
    SELECT {columns} FROM windlass_jobs AS jobs
     WHERE jobs.id < coalesce(?3, 'g') AND {where}
     ORDER BY jobs.id DESC LIMIT ?2)
UNION ALL
SELECT * FROM (
    SELECT {columns} FROM windlass_history AS jobs
     WHERE jobs.id < coalesce(?3, 'g') AND {where}
     ORDER BY jobs.id DESC LIMIT ?2)
ORDER BY id DESC LIMIT ?2

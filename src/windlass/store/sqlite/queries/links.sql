-- Links: the jobs around one job, for its page.

-- name: link_groups
-- Count the jobs that a job knows by name, by name without the number at its end, type and state.
--
--   :id   :most the most links that are counted
--
-- The limit is inside: a job with a million children costs no more than one with that many.
SELECT rtrim(known.name, '[]0123456789'), coalesce(jobs.type, history.type), coalesce(jobs.status, history.status),
       coalesce(coalesce(jobs.parent, history.parent) = :id, 0), count(*), min(known.place) AS place
  FROM (SELECT links.name, links.target, links.place FROM windlass_links AS links WHERE links.job = :id LIMIT :most)
       AS known
  LEFT JOIN windlass_jobs AS jobs ON jobs.id = known.target
  LEFT JOIN windlass_history AS history ON history.id = known.target AND jobs.id IS NULL
 GROUP BY 1, 2, 3, 4
 ORDER BY place, 1, 2, 3

-- name: relatives
-- Read the jobs that jobs know by name, and the jobs that wait for them now, a page of each at most.
--
--   :ids a JSON array   :page
--
-- The subqueries end the walk through the index of each job: one of them may have 10,000 links.
SELECT links.job, links.name, links.target AS other, links.place AS place
  FROM json_each(:ids) AS wanted
  JOIN windlass_links AS links ON links.rowid IN (
       SELECT known.rowid FROM windlass_links AS known WHERE known.job = wanted.value LIMIT :page)
UNION ALL
SELECT edges.awaited, NULL, edges.waiter, 0
  FROM json_each(:ids) AS wanted
  JOIN windlass_edges AS edges ON edges.rowid IN (
       SELECT behind.rowid FROM windlass_edges AS behind WHERE behind.awaited = wanted.value LIMIT :page)
ORDER BY place, 2, other

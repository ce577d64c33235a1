-- Links: the jobs around one job, for its page.

-- name: link_groups
-- Count the jobs that a job knows by name, by name without the number at its end, type and state.
--
--   $1 id   $2 the most links that are counted
--
-- The limit is inside: a job with a million children costs no more than one with that many. A job in the jobs table is
-- not looked for in the history.
SELECT rtrim(known.name, '[]0123456789') AS name, found.type, found.status, coalesce(found.parent = $1, false) AS child,
       count(*) AS count, min(known.place) AS place
  FROM (SELECT links.name, links.target, links.place FROM windlass.links WHERE links.job = $1 LIMIT $2::int) AS known
  LEFT JOIN LATERAL (
    SELECT type, status, parent FROM windlass.jobs WHERE jobs.id = known.target
    UNION ALL
    SELECT type, status, parent FROM windlass.history WHERE history.id = known.target
    LIMIT 1) AS found ON true
 GROUP BY 1, 2, 3, 4
 ORDER BY place, 1, 2, 3

-- name: relatives
-- Read the jobs that jobs know by name, and the jobs that wait for them now, a page of each at most.
--
--   $1 ids   $2 page
--
-- LATERAL, so that a page ends the walk through the index of each job: one of them may have 10,000 links.
SELECT wanted.id AS job, known.name, known.target AS other, known.place
  FROM unnest($1::uuid[]) AS wanted (id)
 CROSS JOIN LATERAL (
    SELECT links.name, links.target, links.place FROM windlass.links WHERE links.job = wanted.id LIMIT $2::int) AS known
UNION ALL
SELECT wanted.id, NULL, behind.waiter, 0
  FROM unnest($1::uuid[]) AS wanted (id)
 CROSS JOIN LATERAL (SELECT edges.waiter FROM windlass.edges WHERE edges.awaited = wanted.id LIMIT $2::int) AS behind
ORDER BY place, name, other

-- The jobs that this one knows by name, as they are now.   $1 id
SELECT links.name, links.target, found.status, found.output::text, found.error::text
  FROM windlass.links
  LEFT JOIN LATERAL (
    SELECT status, output, error FROM windlass.jobs WHERE jobs.id = links.target
    UNION ALL
    SELECT status, output, error FROM windlass.history WHERE history.id = links.target
    LIMIT 1) AS found ON true
 WHERE links.job = $1
 ORDER BY links.place, links.name

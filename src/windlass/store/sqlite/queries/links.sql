-- The jobs that this one knows by name, as they are now.   :id
SELECT links.name, links.target, coalesce(jobs.status, history.status), coalesce(jobs.output, history.output),
       coalesce(jobs.error, history.error)
  FROM windlass_links AS links
  LEFT JOIN windlass_jobs AS jobs ON jobs.id = links.target
  LEFT JOIN windlass_history AS history ON history.id = links.target
 WHERE links.job = :id
 ORDER BY links.place, links.name

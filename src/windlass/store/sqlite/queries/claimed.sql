-- What a claim took. Apart from claim.sql, because RETURNING knows no alias of its table.
SELECT {columns}
  FROM windlass_jobs AS jobs
 WHERE jobs.status = 'running' AND jobs.worker = :worker AND jobs.token = :token

-- Tenants that have a weight or jobs, or cost something in the last 24 hours.   ?1 []   ?2 now
WITH counted AS MATERIALIZED (
    SELECT tenant,
           sum(status IN ('queued', 'failed')) AS queued,
           sum(status = 'running') AS running,
           sum(parked_on IS NOT NULL) AS parked,
           (?2 - min(run_at) FILTER (WHERE status IN ('queued', 'failed') AND run_at <= ?2)) / 1000000.0 AS lag
      FROM windlass_jobs
     GROUP BY tenant
), cost AS MATERIALIZED (
    SELECT tenant, sum(cents) AS cents FROM windlass_ledger WHERE at > ?2 - 24 * 3600 * 1000000 GROUP BY tenant
)
SELECT names.name, coalesce(tenants.weight, 1.0), coalesce(counted.queued, 0), coalesce(counted.running, 0),
       coalesce(counted.parked, 0), counted.lag, coalesce(cost.cents, 0)
  FROM (SELECT name FROM windlass_tenants UNION SELECT tenant FROM counted UNION SELECT tenant FROM cost) AS names
  LEFT JOIN windlass_tenants AS tenants ON tenants.name = names.name
  LEFT JOIN counted ON counted.tenant = names.name
  LEFT JOIN cost ON cost.tenant = names.name
 ORDER BY names.name

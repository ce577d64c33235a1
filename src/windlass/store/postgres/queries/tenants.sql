-- Tenants that have a weight or jobs, or cost something in the last 24 hours.   $1 []
WITH counted AS (
    SELECT tenant,
           count(*) FILTER (WHERE status IN ('queued', 'failed'))::int AS queued,
           count(*) FILTER (WHERE status = 'running')::int AS running,
           count(*) FILTER (WHERE parked_on IS NOT NULL)::int AS parked,
           extract(epoch FROM windlass.now() - min(run_at)
               FILTER (WHERE status IN ('queued', 'failed') AND run_at <= windlass.now() AND run_at > '-infinity'))::float8 AS lag
      FROM windlass.jobs
     GROUP BY tenant
), cost AS (
    SELECT tenant, sum(cents)::bigint AS cents
      FROM windlass.ledger
     WHERE at > windlass.now() - interval '24 hours'
     GROUP BY tenant
)
SELECT name, coalesce(tenants.weight, 1.0), coalesce(counted.queued, 0), coalesce(counted.running, 0),
       coalesce(counted.parked, 0), counted.lag, coalesce(cost.cents, 0)
  FROM (SELECT name FROM windlass.tenants UNION SELECT tenant FROM counted UNION SELECT tenant FROM cost) AS names
  LEFT JOIN windlass.tenants USING (name)
  LEFT JOIN counted ON counted.tenant = names.name
  LEFT JOIN cost ON cost.tenant = names.name
 WHERE CAST($1 AS json) IS NOT NULL
 ORDER BY name

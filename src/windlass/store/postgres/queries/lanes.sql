-- Where claimable jobs are: one row per (queue, phase rank, priority, tenant, limited), in the order of a claim.
--
-- A loose index scan: each step jumps to the first entry after the lane it knows, so that the cost is one descent
-- per lane and not one row per job. `next_in` tells when the first job that is still to come is due, for a worker that
-- wants to sleep until then; only of types it knows ($1), or it would wake for jobs of others.
-- Where that job had been due when it was `written`, the clock was set back since; a time years ahead is nobody's clock.
WITH RECURSIVE lane AS (
    (SELECT queue, phase_rank, -priority AS urgency, tenant, limits IS NOT NULL AS limited
       FROM windlass.jobs
      WHERE status IN ('queued', 'failed') AND parked_on IS NULL
      ORDER BY queue, phase_rank, (-priority), tenant, (limits IS NOT NULL)
      LIMIT 1)
    UNION ALL
    SELECT following.queue, following.phase_rank, following.urgency, following.tenant, following.limited
      FROM lane
     CROSS JOIN LATERAL (
        SELECT queue, phase_rank, -priority AS urgency, tenant, limits IS NOT NULL AS limited
          FROM windlass.jobs
         WHERE status IN ('queued', 'failed') AND parked_on IS NULL
           AND (queue, phase_rank, (-priority), tenant, (limits IS NOT NULL))
               > (lane.queue, lane.phase_rank, lane.urgency, lane.tenant, lane.limited)
         ORDER BY queue, phase_rank, (-priority), tenant, (limits IS NOT NULL)
         LIMIT 1) AS following
)
SELECT lane.queue, lane.phase_rank, lane.urgency, lane.tenant, lane.limited,
       coalesce(tenants.weight, 1.0) AS weight,
       ahead.next_in, ahead.written, extract(epoch FROM windlass.now())::float8 AS clock,
       (SELECT extract(epoch FROM max(seen_at))::float8 FROM windlass.installation) AS seen
  FROM lane
  LEFT JOIN windlass.tenants ON tenants.name = lane.tenant
  LEFT JOIN LATERAL (
        SELECT extract(epoch FROM jobs.run_at - windlass.now())::float8 AS next_in,
               CASE WHEN jobs.run_at <= greatest(jobs.created_at, jobs.updated_at)
                         AND greatest(jobs.created_at, jobs.updated_at) < windlass.now() + interval '10 years'
                    THEN extract(epoch FROM greatest(jobs.created_at, jobs.updated_at))::float8 END AS written
          FROM windlass.jobs
         WHERE status IN ('queued', 'failed') AND jobs.parked_on IS NULL
           AND jobs.queue = lane.queue AND jobs.phase_rank = lane.phase_rank
           AND (-jobs.priority) = lane.urgency AND jobs.tenant = lane.tenant
           AND (jobs.limits IS NOT NULL) = lane.limited
           AND jobs.run_at > windlass.now() AND jobs.run_at < '9999-12-31' AND jobs.type = ANY ($1::text[])
         ORDER BY jobs.run_at
         LIMIT 1) AS ahead ON true
 ORDER BY lane.phase_rank, lane.urgency, lane.queue

-- Where claimable jobs are: one row per (queue, phase rank, priority), in the order of a claim.
--
-- A loose index scan: each step jumps to the first entry after the lane it knows, so that the cost is one descent
-- per lane and not one row per job. `next_run_at` is the first run_at that is still to come, for a worker that
-- wants to sleep until then; only of types it knows ($1), or it would wake for jobs of others.
WITH RECURSIVE lane AS (
    (SELECT queue, phase_rank, -priority AS urgency
       FROM windlass.jobs
      WHERE status IN ('queued', 'failed')
      ORDER BY queue, phase_rank, (-priority)
      LIMIT 1)
    UNION ALL
    SELECT following.queue, following.phase_rank, following.urgency
      FROM lane
     CROSS JOIN LATERAL (
        SELECT queue, phase_rank, -priority AS urgency
          FROM windlass.jobs
         WHERE status IN ('queued', 'failed')
           AND (queue, phase_rank, (-priority)) > (lane.queue, lane.phase_rank, lane.urgency)
         ORDER BY queue, phase_rank, (-priority)
         LIMIT 1) AS following
)
SELECT lane.queue, lane.phase_rank, lane.urgency,
       (SELECT extract(epoch FROM jobs.run_at - windlass.now())::float8
          FROM windlass.jobs
         WHERE status IN ('queued', 'failed')
           AND jobs.queue = lane.queue AND jobs.phase_rank = lane.phase_rank
           AND (-jobs.priority) = lane.urgency AND jobs.run_at > windlass.now() AND jobs.type = ANY ($1::text[])
         ORDER BY jobs.run_at
         LIMIT 1) AS next_in
  FROM lane
 ORDER BY lane.phase_rank, lane.urgency, lane.queue

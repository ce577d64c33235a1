-- Keys that have room while jobs are parked on them which some worker could take now: how many, and which comes next.
WITH closed AS MATERIALIZED (
    SELECT kind, name FROM windlass.gates WHERE state <> 'open'
    UNION ALL
    SELECT kind, name FROM windlass.budgets WHERE CASE WHEN until > windlass.now() THEN spent ELSE 0 END >= cents
), known AS MATERIALIZED (
    SELECT DISTINCT unnest(types) AS type FROM windlass.workers WHERE NOT dead
)
SELECT jobs.parked_on, count(*)::int,
       (array_agg(jobs.id::text ORDER BY jobs.phase_rank, -jobs.priority, jobs.run_at, jobs.id))[1]
  FROM windlass.jobs
  LEFT JOIN windlass.turnstiles ON turnstiles.key = jobs.parked_on
 WHERE jobs.parked_on IS NOT NULL
   AND (turnstiles.key IS NULL
        OR windlass.room(most, used, period, burst, next_at, held_until) > 0)
   AND (jobs.type IN (SELECT type FROM known) OR NOT EXISTS (SELECT FROM known))
   AND NOT EXISTS (SELECT FROM closed
                    WHERE kind = 'all' OR (kind = 'queue' AND name = jobs.queue)
                       OR (kind = 'type' AND name = jobs.type) OR (kind = 'tenant' AND name = jobs.tenant))
 GROUP BY jobs.parked_on
 ORDER BY jobs.parked_on

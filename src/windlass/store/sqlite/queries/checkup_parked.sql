-- Keys that have room while jobs are parked on them which some worker could take now: how many, and which comes next.
--   :now
WITH closed AS MATERIALIZED (
    SELECT kind, name FROM windlass_gates WHERE state <> 'open'
    UNION ALL
    SELECT kind, name FROM windlass_budgets WHERE iif(until > :now, spent, 0) >= cents
), known AS MATERIALIZED (
    SELECT DISTINCT types.value AS type FROM windlass_workers AS workers, json_each(workers.types) AS types
     WHERE NOT workers.dead
), parked AS MATERIALIZED (
    SELECT jobs.id, jobs.parked_on,
           row_number() OVER (PARTITION BY jobs.parked_on
                              ORDER BY jobs.phase_rank, jobs.priority DESC, jobs.run_at, jobs.id) AS place
      FROM windlass_jobs AS jobs
      LEFT JOIN windlass_turnstiles AS turnstiles ON turnstiles.key = jobs.parked_on
     WHERE jobs.parked_on IS NOT NULL
       AND (turnstiles.key IS NULL OR room(most, used, period, burst, next_at, held_until, :now) > 0)
       AND (jobs.type IN (SELECT type FROM known) OR NOT EXISTS (SELECT 1 FROM known))
       AND NOT EXISTS (SELECT 1 FROM closed
                        WHERE kind = 'all' OR (kind = 'queue' AND name = jobs.queue)
                           OR (kind = 'type' AND name = jobs.type) OR (kind = 'tenant' AND name = jobs.tenant))
)
SELECT parked_on, count(*), max(id) FILTER (WHERE place = 1)
  FROM parked
 GROUP BY parked_on
 ORDER BY parked_on

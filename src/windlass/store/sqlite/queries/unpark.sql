-- Let in the first of those who are parked on keys that have room, as many as there is room for: only jobs that some
-- worker could take now, or one that nobody can run would keep the place of all behind it.   ?1 [key]   ?2 now
--
-- The heads of one key are a JSON array: a subquery of FROM cannot look at its neighbour, and a LIMIT cannot either.
WITH freed AS MATERIALIZED (
    SELECT wanted.value AS key, iif(turnstiles.key IS NULL, 1000, room(most, used, period, burst, next_at, held_until, ?2)) AS room
      FROM json_each(?1) AS wanted
      LEFT JOIN windlass_turnstiles AS turnstiles ON turnstiles.key = wanted.value
), closed AS MATERIALIZED (
    SELECT kind, name FROM windlass_gates WHERE state <> 'open'
    UNION ALL
    SELECT kind, name FROM windlass_budgets WHERE iif(until > ?2, spent, 0) >= cents
), first AS MATERIALIZED (
    SELECT head.value AS id
      FROM freed, json_each((
            SELECT json_group_array(parked.id)
              FROM (SELECT jobs.id
                      FROM windlass_jobs AS jobs
                     WHERE jobs.parked_on = freed.key
                       AND (jobs.type IN (SELECT known.value
                                            FROM windlass_workers AS workers, json_each(workers.types) AS known
                                           WHERE NOT workers.dead AND workers.queues IS NULL)
                            OR (jobs.type, jobs.queue) IN (
                                SELECT known.value, served.value
                                  FROM windlass_workers AS workers, json_each(workers.types) AS known,
                                       json_each(workers.queues) AS served
                                 WHERE NOT workers.dead))
                       AND jobs.type NOT IN (SELECT name FROM closed WHERE kind = 'type')
                       AND jobs.queue NOT IN (SELECT name FROM closed WHERE kind = 'queue')
                       AND jobs.tenant NOT IN (SELECT name FROM closed WHERE kind = 'tenant')
                     ORDER BY jobs.phase_rank, jobs.priority DESC, jobs.run_at, jobs.id
                     LIMIT (SELECT max(room) FROM freed)) AS parked)) AS head
     WHERE freed.room > 0 AND head.key < freed.room
)
UPDATE windlass_jobs SET parked_on = NULL
 WHERE id IN (SELECT id FROM first)
RETURNING id, queue

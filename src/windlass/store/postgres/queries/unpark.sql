-- Let in the first of those who are parked on keys that have room, as many as there is room for: only jobs that some
-- worker could take now, or one that nobody can run would keep the place of all behind it. A row that somebody holds is
-- skipped.   $1 [key]
WITH closed AS MATERIALIZED (
    SELECT kind, name FROM windlass.gates WHERE state <> 'open'
    UNION ALL
    SELECT kind, name FROM windlass.budgets WHERE cents = 0 OR (spent >= cents AND until > windlass.now())
), worker AS MATERIALIZED (
    SELECT types, queues FROM windlass.workers WHERE NOT dead
), served AS MATERIALIZED (
    -- Types that some worker takes from every queue, and those it takes from some: type and queue in one text.
    SELECT ARRAY (SELECT DISTINCT unnest(types) FROM worker WHERE queues IS NULL) AS everywhere,
           ARRAY (SELECT DISTINCT type || E'\x1f' || queue
                    FROM worker, unnest(types) AS type, unnest(queues) AS queue) AS somewhere
), first AS MATERIALIZED (
    SELECT parked.id
      FROM (SELECT key FROM json_array_elements_text(CAST($1 AS json)) AS keys (key)
             WHERE EXISTS (SELECT FROM windlass.jobs WHERE jobs.parked_on IS NOT NULL)) AS freed
     CROSS JOIN LATERAL (
        SELECT jobs.id
          FROM windlass.jobs
         WHERE jobs.parked_on = freed.key
           AND (jobs.type = ANY ((SELECT everywhere FROM served)::text[])
                OR jobs.type || E'\x1f' || jobs.queue = ANY ((SELECT somewhere FROM served)::text[]))
           AND jobs.type NOT IN (SELECT name FROM closed WHERE kind = 'type')
           AND jobs.queue NOT IN (SELECT name FROM closed WHERE kind = 'queue')
           AND jobs.tenant NOT IN (SELECT name FROM closed WHERE kind = 'tenant')
         ORDER BY jobs.phase_rank, (-jobs.priority), jobs.run_at, jobs.id
         LIMIT coalesce((SELECT windlass.room(most, used, period, burst, next_at, held_until)
                           FROM windlass.turnstiles WHERE turnstiles.key = freed.key), 1000)
           FOR UPDATE SKIP LOCKED) AS parked
), given AS MATERIALIZED (
    SELECT seen.key, seen.xmin AS version, seen.parked,
           EXISTS (SELECT FROM windlass.jobs
                    WHERE jobs.parked_on = seen.key AND jobs.id NOT IN (SELECT id FROM first) OFFSET 0) AS others
      FROM windlass.turnstiles AS seen
     WHERE seen.key = ANY (ARRAY (SELECT json_array_elements_text(CAST($1 AS json))))
), turned AS MATERIALIZED (
    -- Nobody else waits there: no need to look again when the next slot comes back. Only where the row is as it was when
    -- this began: who parked somebody since has written it. A mark that is missing is made good.
    SELECT turnstiles.key, given.others
      FROM given
      JOIN windlass.turnstiles ON turnstiles.key = ANY (ARRAY[given.key])
     WHERE given.others <> given.parked AND turnstiles.xmin = given.version
     ORDER BY given.key
       FOR UPDATE OF turnstiles SKIP LOCKED
), marked AS (
    UPDATE windlass.turnstiles SET parked = turned.others FROM turned WHERE turnstiles.key = ANY (ARRAY[turned.key])
)
UPDATE windlass.jobs SET parked_on = NULL
  FROM first
 WHERE jobs.id = ANY (ARRAY[first.id])
RETURNING jobs.id, jobs.queue

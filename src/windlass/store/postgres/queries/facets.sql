-- Facets: how many of the jobs that match a filter have each state, queue, type, …, up to a bound.

-- fragment: facet_columns
-- The columns that jobs are counted by. The text of an error is made only where it is asked for.
jobs.id, jobs.status, jobs.queue, jobs.type, jobs.tenant, jobs.phase, jobs.pipeline, jobs.reason, jobs.key,
           CASE WHEN 'error' = ANY ($2::text[])
                THEN left(split_part((jobs.error ->> 'type') || ': ' || (jobs.error ->> 'message'), chr(10), 1), 120)
           END AS error

-- fragment: facets_of_matching
-- Count the matching jobs by each field of $2; at most 1,000 values, the most frequent of them.
SELECT field.name, field.value, count(*) AS jobs
  FROM matching
 CROSS JOIN LATERAL (VALUES
        ('state', status), ('queue', queue), ('type', type), ('tenant', tenant), ('phase', phase),
        ('pipeline', pipeline), ('reason', reason), ('key', key), ('error', error)) AS field (name, value)
 WHERE field.name = ANY ($2::text[]) AND field.value IS NOT NULL
 GROUP BY field.name, field.value
 ORDER BY field.name = 'state' DESC, jobs DESC, field.name, field.value
 LIMIT 1000

-- name: facets
-- Count the newest jobs that match any filter by their fields.
--
--   $1 the most jobs   $2 fields   $3 the most rows that are read of each table   $4 … the filter's own, then those of
--   its terms that an index has
WITH matching AS MATERIALIZED (
    SELECT * FROM (
        (SELECT {facet_columns}
           FROM (SELECT * FROM windlass.jobs WHERE {names} ORDER BY id DESC LIMIT $3::int) AS jobs
          WHERE {where} ORDER BY jobs.id DESC LIMIT $1::int)
        UNION ALL
        (SELECT {facet_columns}
           FROM (SELECT * FROM windlass.history AS jobs WHERE {names} ORDER BY id DESC LIMIT $3::int) AS jobs
          WHERE {where} ORDER BY jobs.id DESC LIMIT $1::int)
    ) AS found
     ORDER BY id DESC
     LIMIT $1::int
)
{facets_of_matching}

-- name: facets_by_name
-- Count jobs by their fields, where the filter names states or queues, or has nothing but names.
--
--   $1 the most jobs   $2 fields   $3 the most rows that are read of each part
--   $4 whether claimable and parked jobs may match   $5 whether running ones may   $6 states that are set aside
--   $7 whether any job of the history may match      $8 whether cancelled ones may, and no other of the history
--   $9 … the filter's own, then those of its queues
--
-- Each part is read by its own index, from the filter's queues on, and not by id: the only dead job among a million may
-- be the oldest one. A part that cannot match costs nothing: its first condition has no column.
WITH matching AS MATERIALIZED (
    (SELECT {facet_columns}
       FROM (SELECT * FROM windlass.jobs WHERE $4::boolean AND {in_claim_index} AND {names} LIMIT $3::int) AS jobs
      WHERE {where})
    UNION ALL
    (SELECT {facet_columns}
       FROM (SELECT * FROM windlass.jobs
              WHERE $4::boolean AND coalesce(jobs.parked_on, '') <> '' AND {names} LIMIT $3::int) AS jobs
      WHERE {where})
    UNION ALL
    (SELECT {facet_columns}
       FROM (SELECT * FROM windlass.jobs WHERE $5::boolean AND jobs.status = 'running' LIMIT $3::int) AS jobs
      WHERE {where})
    UNION ALL
    (SELECT {facet_columns}
       FROM (SELECT * FROM windlass.jobs
              WHERE {set_aside} AND jobs.status = ANY ($6::text[]) AND {names} LIMIT $3::int) AS jobs
      WHERE {where})
    UNION ALL
    (SELECT {facet_columns}
       FROM (SELECT * FROM windlass.history WHERE $7::boolean ORDER BY id DESC LIMIT $3::int) AS jobs
      WHERE {where})
    UNION ALL
    (SELECT {facet_columns}
       FROM (SELECT * FROM windlass.history
              WHERE $8::boolean AND status = 'cancelled' ORDER BY id DESC LIMIT $3::int) AS jobs
      WHERE {where})
    LIMIT $1::int
)
{facets_of_matching}

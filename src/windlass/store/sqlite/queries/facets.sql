-- Facets: how many of the jobs that match a filter have each state, queue, type, …, up to a bound.

-- fragment: facet_columns
-- The columns that jobs are counted by. The text of an error is made only where it is asked for.
jobs.id, jobs.status, jobs.queue, jobs.type, jobs.tenant, jobs.phase, jobs.pipeline, jobs.reason, jobs.key,
           CASE WHEN 'error' IN (SELECT value FROM json_each(?3)) THEN
                substr(json_extract(jobs.error, '$.type') || ': ' || json_extract(jobs.error, '$.message'), 1, min(120,
                instr(json_extract(jobs.error, '$.type') || ': ' || json_extract(jobs.error, '$.message') || char(10),
                      char(10)) - 1)) END AS error

-- fragment: facets_of_matching
-- Count the matching jobs by each field of ?3; at most 1,000 values, the most frequent of them.
SELECT name, value, count(*) AS jobs FROM (
    SELECT 'state' AS name, status AS value FROM matching WHERE 'state' IN (SELECT value FROM json_each(?3))
    UNION ALL
    SELECT 'queue' AS name, queue AS value FROM matching WHERE 'queue' IN (SELECT value FROM json_each(?3))
    UNION ALL
    SELECT 'type' AS name, type AS value FROM matching WHERE 'type' IN (SELECT value FROM json_each(?3))
    UNION ALL
    SELECT 'tenant' AS name, tenant AS value FROM matching WHERE 'tenant' IN (SELECT value FROM json_each(?3))
    UNION ALL
    SELECT 'phase' AS name, phase AS value FROM matching WHERE 'phase' IN (SELECT value FROM json_each(?3))
    UNION ALL
    SELECT 'pipeline' AS name, pipeline AS value FROM matching WHERE 'pipeline' IN (SELECT value FROM json_each(?3))
    UNION ALL
    SELECT 'reason' AS name, reason AS value FROM matching WHERE 'reason' IN (SELECT value FROM json_each(?3))
    UNION ALL
    SELECT 'key' AS name, key AS value FROM matching WHERE 'key' IN (SELECT value FROM json_each(?3))
    UNION ALL
    SELECT 'error' AS name, error AS value FROM matching WHERE 'error' IN (SELECT value FROM json_each(?3))
)
 WHERE value IS NOT NULL
 GROUP BY name, value
 ORDER BY name = 'state' DESC, jobs DESC, name, value
 LIMIT 1000

-- name: facets
-- Count the newest jobs that match any filter by their fields.
--   ?1 now   ?2 the most jobs   ?3 fields, a JSON array   ?4 the most rows that are read of each table
--   ?5 … the filter's own, then those of its terms that an index has
WITH matching AS MATERIALIZED (
    SELECT * FROM (
        SELECT * FROM (
            SELECT {facet_columns}
              FROM (SELECT * FROM windlass_jobs AS jobs WHERE {names} ORDER BY id DESC LIMIT ?4) AS jobs
             WHERE {where} ORDER BY jobs.id DESC LIMIT ?2)
        UNION ALL
        SELECT * FROM (
            SELECT {facet_columns}
              FROM (SELECT * FROM windlass_history AS jobs WHERE {names} ORDER BY id DESC LIMIT ?4) AS jobs
             WHERE {where} ORDER BY jobs.id DESC LIMIT ?2))
     ORDER BY id DESC
     LIMIT ?2
)
{facets_of_matching}

-- name: facets_by_name
-- Count jobs by their fields, where the filter names states or queues, or has nothing but names.
--   ?1 now   ?2 the most jobs   ?3 fields, a JSON array   ?4 the most rows that are read of each part
--   ?5 whether claimable and parked jobs may match   ?6 whether running ones may   ?7 states that are set aside
--   ?8 whether any job of the history may match      ?9 whether cancelled ones may, and no other of the history
--   ?10 … the filter's own, then those of its queues
--
-- Each part is read by its own index, from the filter's queues on, and not by id: the only dead job among a million may
-- be the oldest one. A part that cannot match costs nothing: its first condition has no column.
WITH matching AS MATERIALIZED (
    SELECT {facet_columns}
      FROM (SELECT * FROM windlass_jobs AS jobs WHERE ?5 AND {in_claim_index} AND {names} LIMIT ?4) AS jobs
     WHERE {where}
    UNION ALL
    SELECT {facet_columns}
      FROM (SELECT * FROM windlass_jobs AS jobs WHERE ?5 AND coalesce(parked_on, '') <> '' AND {names} LIMIT ?4) AS jobs
     WHERE {where}
    UNION ALL
    SELECT {facet_columns}
      FROM (SELECT * FROM windlass_jobs AS jobs WHERE ?6 AND status = 'running' LIMIT ?4) AS jobs
     WHERE {where}
    UNION ALL
    SELECT {facet_columns}
      FROM (SELECT * FROM windlass_jobs AS jobs
             WHERE {set_aside} AND status IN (SELECT value FROM json_each(?7)) AND {names} LIMIT ?4) AS jobs
     WHERE {where}
    UNION ALL
    SELECT {facet_columns}
      FROM (SELECT * FROM windlass_history WHERE ?8 ORDER BY id DESC LIMIT ?4) AS jobs
     WHERE {where}
    UNION ALL
    SELECT {facet_columns}
      FROM (SELECT * FROM windlass_history WHERE ?9 AND status = 'cancelled' ORDER BY id DESC LIMIT ?4) AS jobs
     WHERE {where}
    LIMIT ?2
)
{facets_of_matching}

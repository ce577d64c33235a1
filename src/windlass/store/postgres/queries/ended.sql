-- Jobs that just ended and whose end changes more than themselves.   $1 [id]
WITH ids AS MATERIALIZED (
    SELECT value::uuid AS id FROM json_array_elements_text(CAST($1 AS json)) AS ids (value)
)
SELECT jobs.id, jobs.status, jobs.tenant, jobs.trace, jobs.input::text, jobs.output::text, jobs.error::text,
       jobs.consequences::text
  FROM ids
  JOIN windlass.jobs ON jobs.id = ANY (ARRAY[ids.id])
 WHERE jobs.followed AND jobs.status = 'dead'
UNION ALL
SELECT jobs.id, jobs.status, jobs.tenant, jobs.trace, jobs.input::text, jobs.output::text, jobs.error::text,
       jobs.consequences::text
  FROM ids
  JOIN windlass.history AS jobs ON jobs.id = ANY (ARRAY[ids.id])
 WHERE jobs.followed

-- Rows for keys that are met for the first time, where their name is declared.   $1 [key], sorted
--
-- Jobs that run already, claimed when nobody had declared it, count; but not here: one that ends while this is written
-- would find no row to give its slot back to. The row is closed, and count_turnstiles.sql opens it.
WITH held AS MATERIALIZED (
    SELECT DISTINCT slot.key
      FROM windlass.jobs
     CROSS JOIN LATERAL unnest(jobs.limits) AS slot (key)
     WHERE jobs.status = 'running' AND jobs.limits IS NOT NULL
)
INSERT INTO windlass.turnstiles (key, name, most, period, burst, used, counted)
SELECT wanted.key, limits.name, limits.most, limits.period, limits.burst,
       CASE WHEN held.key IS NULL OR limits.most IS NULL THEN 0 ELSE limits.most END,
       held.key IS NULL OR limits.most IS NULL
  FROM json_array_elements_text(CAST($1 AS json)) AS wanted (key)
  JOIN windlass.limits ON limits.name = split_part(wanted.key, ':', 1)
  LEFT JOIN held ON held.key = wanted.key
 WHERE NOT EXISTS (SELECT FROM windlass.turnstiles WHERE turnstiles.key = wanted.key OFFSET 0)
 ORDER BY wanted.key
    ON CONFLICT (key) DO NOTHING
RETURNING key, counted

-- Rows for keys that are met for the first time, where their name is declared. Jobs that run already, claimed when nobody
-- had declared it, count.   $1 [key], sorted
INSERT INTO windlass.turnstiles (key, name, most, period, burst, used)
SELECT wanted.key, limits.name, limits.most, limits.period, limits.burst,
       CASE WHEN limits.most IS NULL THEN 0 ELSE (
           SELECT count(*) FROM windlass.jobs WHERE jobs.status = 'running' AND wanted.key = ANY (jobs.limits)) END
  FROM json_array_elements_text(CAST($1 AS json)) AS wanted (key)
  JOIN windlass.limits ON limits.name = split_part(wanted.key, ':', 1)
 WHERE NOT EXISTS (SELECT FROM windlass.turnstiles WHERE turnstiles.key = wanted.key)
 ORDER BY wanted.key
    ON CONFLICT (key) DO NOTHING

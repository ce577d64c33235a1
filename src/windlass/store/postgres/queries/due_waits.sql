-- Waiting jobs whose time is up, and those whose need is met and whom nobody could wake; nothing waits.   $1 [page]
WITH due AS MATERIALIZED (
    (SELECT job FROM windlass.waits WHERE wake_at <= windlass.now() ORDER BY wake_at LIMIT 1000)
    UNION
    (SELECT job FROM windlass.waits WHERE need > 0 AND (succeeded >= need OR succeeded + pending < need) LIMIT 1000)
)
SELECT waits.job
  FROM windlass.waits
 WHERE waits.job = ANY (ARRAY (SELECT job FROM due))
 LIMIT (SELECT value::int FROM json_array_elements_text(CAST($1 AS json)) AS page (value))
   FOR UPDATE SKIP LOCKED

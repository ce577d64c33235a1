-- Waiting jobs whose time is up, and those whose need is met and whom nobody could wake.   ?1 [page]   ?2 now
SELECT job FROM windlass_waits WHERE wake_at <= ?2
UNION
SELECT job FROM windlass_waits WHERE need > 0 AND (succeeded >= need OR succeeded + pending < need)
 LIMIT (SELECT value FROM json_each(?1))

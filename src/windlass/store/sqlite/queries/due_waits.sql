-- Waiting jobs whose time is up. Nobody skips a locked row here, so that a wait whose need is met is over already.
--   ?1 [page]   ?2 now
SELECT job FROM windlass_waits WHERE wake_at <= ?2 ORDER BY wake_at LIMIT (SELECT value FROM json_each(?1))

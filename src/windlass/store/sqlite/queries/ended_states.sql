-- States of jobs that are in the history, or whose key for ever tells that they succeeded.   ?1 [id]   ?2 now
SELECT id, status FROM windlass_history WHERE id IN (SELECT value FROM json_each(?1))
UNION
SELECT job, 'succeeded' FROM windlass_keys
 WHERE job IN (SELECT value FROM json_each(?1)) AND forever AND NOT free AND ended_at IS NOT NULL

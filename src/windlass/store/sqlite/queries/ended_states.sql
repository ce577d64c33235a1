-- States of jobs that are in the history.   ?1 [id]   ?2 now
SELECT id, status FROM windlass_history WHERE id IN (SELECT value FROM json_each(?1))

-- A job that has not ended.   ?1 [id]   ?2 now
SELECT id, status FROM windlass_jobs WHERE id IN (SELECT value FROM json_each(?1)) AND status <> 'dead'

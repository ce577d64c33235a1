-- These jobs wait for nothing any more.   ?1 [id]   ?2 now
DELETE FROM windlass_waits WHERE job IN (SELECT value FROM json_each(?1))

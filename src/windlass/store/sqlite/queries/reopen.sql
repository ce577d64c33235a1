-- A job comes back from its end: whoever still waits for it waits for it again.   ?1 [id]   ?2 now
SELECT waiter, fence, ok FROM windlass_edges WHERE awaited IN (SELECT value FROM json_each(?1)) AND done
-- then
UPDATE windlass_edges SET done = 0, ok = 0 WHERE awaited IN (SELECT value FROM json_each(?1)) AND done

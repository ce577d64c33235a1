-- These jobs ended: nobody counts for them any more.   ?1 [id]   ?2 now
DELETE FROM windlass_edges WHERE waiter IN (SELECT value FROM json_each(?1))

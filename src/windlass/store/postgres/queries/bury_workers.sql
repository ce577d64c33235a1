-- Rescue, step one, committed on its own: who has been silent beyond its lease is dead from now on. A beat that comes
-- later finds the mark and changes nothing, so that nothing is ever taken from a worker that is alive.
-- What the clock shows is kept beside it, so that a worker which starts later notices a clock that was set back.
WITH seen AS (
    UPDATE windlass.installation SET seen_at = windlass.now()
     WHERE id = ANY (ARRAY (SELECT id FROM windlass.installation
                             WHERE seen_at < windlass.now() - interval '1 second' FOR UPDATE SKIP LOCKED))
)
UPDATE windlass.workers
   SET dead = true, idle = false
 WHERE id IN (SELECT id FROM windlass.workers WHERE NOT dead AND alive_until < windlass.now() FOR UPDATE SKIP LOCKED)
   AND NOT dead AND alive_until < windlass.now()
RETURNING id

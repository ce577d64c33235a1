-- What the clock shows is kept beside it, so that a worker which starts later notices a clock that was set back.   :now
UPDATE windlass_installation SET seen_at = :now WHERE seen_at < :now
-- then
-- Rescue, step one, committed on its own: who has been silent beyond its lease is dead from now on. A beat that comes
-- later finds the mark and changes nothing, so that nothing is ever taken from a worker that is alive.
UPDATE windlass_workers SET dead = 1, idle = 0 WHERE NOT dead AND alive_until < :now

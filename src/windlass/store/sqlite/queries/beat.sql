-- Alive for another lease, and holding so many jobs; a row that is dead or gone stays so.
UPDATE windlass_workers SET alive_until = :now + :lease, held = :held, held_at = :now WHERE id = :id AND NOT dead

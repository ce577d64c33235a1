-- Alive for another lease; a row that is dead or gone stays so.
UPDATE windlass_workers SET alive_until = :now + :lease WHERE id = :id AND NOT dead

-- The idle mark. Only a change is written: a write that changes nothing costs no fsync.
UPDATE windlass_workers SET idle = :idle WHERE id = :id AND NOT dead AND idle <> :idle

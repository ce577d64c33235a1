-- Whether jobs may be parked on a key. Whoever gives back a slot has the row in hand and reads the mark there: a look at
-- the jobs would need a snapshot of its own, and so another round trip for every batch that ends.
ALTER TABLE windlass.limit_counters ADD COLUMN has_parked boolean NOT NULL DEFAULT false;

UPDATE windlass.limit_counters SET has_parked = true WHERE key IN (SELECT parked_on FROM windlass.jobs WHERE parked_on IS NOT NULL);

-- Whether `used` is known. A row that is made while jobs of its key run already, claimed when nobody had declared the
-- limit, is closed (`used` = `most`) until count_turnstiles.sql has counted them.
ALTER TABLE windlass.limit_counters ADD COLUMN counted boolean NOT NULL DEFAULT true;

CREATE INDEX limit_counters_uncounted ON windlass.limit_counters (key) WHERE NOT counted;

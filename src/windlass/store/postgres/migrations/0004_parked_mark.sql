-- Whether jobs may be parked on a key. Whoever gives back a slot has the row in hand and reads the mark there: a look at
-- the jobs would need a snapshot of its own, and so another round trip for every batch that ends.
ALTER TABLE windlass.turnstiles ADD COLUMN parked boolean NOT NULL DEFAULT false;

UPDATE windlass.turnstiles SET parked = true WHERE key IN (SELECT parked_on FROM windlass.jobs WHERE parked_on IS NOT NULL);

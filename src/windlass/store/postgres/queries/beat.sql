-- Alive for another lease, and holding so many jobs. A row that is dead or gone is not revived: whoever was declared dead stays so.
UPDATE windlass.workers SET alive_until = windlass.now() + make_interval(secs => $2::float8), held = $3::int,
       held_at = windlass.now()
 WHERE id = $1 AND NOT dead
RETURNING true

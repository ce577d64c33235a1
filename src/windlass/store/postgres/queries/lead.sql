-- Leadership by lease: taken when it is free or run out, kept by its holder.   $1 duty   $2 worker   $3 seconds
INSERT INTO windlass.leaders AS held (name, holder, until)
VALUES ($1, $2, windlass.now() + make_interval(secs => $3::float8))
ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, until = excluded.until,
       term = held.term + CASE WHEN held.holder = excluded.holder THEN 0 ELSE 1 END
 WHERE held.holder = excluded.holder OR held.until < windlass.now()
RETURNING true

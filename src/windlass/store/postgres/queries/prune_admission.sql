-- What admission left behind, a page of each: turnstiles nobody came through for an hour, ledger rows and ticks whose time
-- has passed. The answer is the size of the fullest page.   $1 seconds   $2 page
--
-- A claim may take a slot of a turnstile that was just found idle: the conditions are checked again under its lock.
WITH idle AS (
    DELETE FROM windlass.turnstiles
     WHERE key = ANY (ARRAY (
            SELECT turnstiles.key
              FROM windlass.turnstiles
             WHERE touched_at < windlass.now() - interval '1 hour' AND used = 0 AND next_at < windlass.now()
               AND coalesce(held_until, windlass.now()) <= windlass.now()
               AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.parked_on = turnstiles.key OFFSET 0)
             LIMIT $2::int
               FOR UPDATE SKIP LOCKED))
       AND used = 0 AND touched_at < windlass.now() - interval '1 hour'
 RETURNING 1
), old_costs AS (
    -- At least for two months: a budget that is set counts what its window has cost already.
    DELETE FROM windlass.ledger
     WHERE ctid = ANY (ARRAY (
            SELECT ledger.ctid
              FROM windlass.ledger
             WHERE ledger.at < windlass.now() - make_interval(secs => greatest($1::float8, 5356800))
               AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = ledger.job OFFSET 0)
               AND NOT EXISTS (SELECT FROM windlass.history WHERE history.id = ledger.job OFFSET 0)
             LIMIT $2::int))
 RETURNING 1
), old_ticks AS (
    DELETE FROM windlass.ticks
     WHERE ctid = ANY (ARRAY (
            SELECT ticks.ctid
              FROM windlass.ticks
             WHERE ticks.noted_at < windlass.now() - make_interval(secs => $1::float8)
             LIMIT $2::int))
 RETURNING 1
)
SELECT greatest((SELECT count(*) FROM idle), (SELECT count(*) FROM old_costs), (SELECT count(*) FROM old_ticks))

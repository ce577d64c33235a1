-- What outlived its job, a page of each: names, steps and signals of jobs that are gone, and keys that refuse nobody. The
-- answer is the size of the fullest page.   $1 seconds   $2 page
WITH horizon AS MATERIALIZED (
    SELECT windlass.now() - make_interval(secs => $1::float8) AS at
), old_links AS (
    DELETE FROM windlass.links
     WHERE ctid = ANY (ARRAY (
            SELECT links.ctid
              FROM windlass.links
             WHERE links.at < (SELECT at FROM horizon)
               AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = links.job OFFSET 0)
               AND NOT EXISTS (SELECT FROM windlass.history WHERE history.id = links.job OFFSET 0)
             LIMIT $2::int))
 RETURNING 1
), old_steps AS (
    DELETE FROM windlass.steps
     WHERE ctid = ANY (ARRAY (
            SELECT steps.ctid
              FROM windlass.steps
             WHERE steps.at < (SELECT at FROM horizon)
               AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = steps.job OFFSET 0)
               AND NOT EXISTS (SELECT FROM windlass.history WHERE history.id = steps.job OFFSET 0)
             LIMIT $2::int))
 RETURNING 1
), old_signals AS (
    DELETE FROM windlass.signals
     WHERE ctid = ANY (ARRAY (
            SELECT signals.ctid
              FROM windlass.signals
             WHERE signals.at < (SELECT at FROM horizon)
               AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = signals.job OFFSET 0)
               AND NOT EXISTS (SELECT FROM windlass.history WHERE history.id = signals.job OFFSET 0)
             LIMIT $2::int))
 RETURNING 1
), old_windows AS (
    DELETE FROM windlass.keys
     WHERE ctid = ANY (ARRAY (SELECT keys.ctid FROM windlass.keys WHERE keys.until <= windlass.now() LIMIT $2::int))
 RETURNING 1
), old_keys AS (
    DELETE FROM windlass.keys
     WHERE ctid = ANY (ARRAY (
            SELECT keys.ctid
              FROM windlass.keys
             WHERE keys.ended_at < (SELECT at FROM horizon)
               AND (keys.free OR (NOT keys.forever AND keys.until IS NULL))
               AND NOT coalesce(keys.until <= windlass.now(), false)
               AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = keys.job OFFSET 0)
             LIMIT $2::int))
 RETURNING 1
)
SELECT greatest((SELECT count(*) FROM old_links), (SELECT count(*) FROM old_steps), (SELECT count(*) FROM old_signals),
                (SELECT count(*) FROM old_windows), (SELECT count(*) FROM old_keys))

-- What outlived its job: names, steps and signals of jobs that are gone, and keys that refuse nobody.   $1 seconds
WITH horizon AS MATERIALIZED (SELECT windlass.now() - make_interval(secs => $1::float8) AS at
), old_links AS (
    DELETE FROM windlass.links USING horizon
     WHERE links.at < horizon.at
       AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = links.job)
       AND NOT EXISTS (SELECT FROM windlass.history WHERE history.id = links.job)
), old_steps AS (
    DELETE FROM windlass.steps USING horizon
     WHERE steps.at < horizon.at
       AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = steps.job)
       AND NOT EXISTS (SELECT FROM windlass.history WHERE history.id = steps.job)
), old_signals AS (
    DELETE FROM windlass.signals USING horizon
     WHERE signals.at < horizon.at
       AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = signals.job)
       AND NOT EXISTS (SELECT FROM windlass.history WHERE history.id = signals.job)
), old_windows AS (
    DELETE FROM windlass.keys WHERE until <= windlass.now()
)
DELETE FROM windlass.keys USING horizon
 WHERE keys.ended_at < horizon.at AND (keys.free OR (NOT keys.forever AND keys.until IS NULL))
   AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = keys.job)
   AND NOT coalesce(keys.until <= windlass.now(), false)

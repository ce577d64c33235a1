-- What outlived its job: names, steps and signals of jobs that are gone, and keys that refuse nobody.
--   ?1 the history in microseconds   ?2 now
DELETE FROM windlass_links
 WHERE at < ?2 - ?1
   AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = windlass_links.job)
   AND NOT EXISTS (SELECT 1 FROM windlass_history AS history WHERE history.id = windlass_links.job)
-- then
DELETE FROM windlass_steps
 WHERE at < ?2 - ?1
   AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = windlass_steps.job)
   AND NOT EXISTS (SELECT 1 FROM windlass_history AS history WHERE history.id = windlass_steps.job)
-- then
DELETE FROM windlass_signals
 WHERE at < ?2 - ?1
   AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = windlass_signals.job)
   AND NOT EXISTS (SELECT 1 FROM windlass_history AS history WHERE history.id = windlass_signals.job)
-- then
DELETE FROM windlass_keys
 WHERE until <= ?2
    OR (ended_at < ?2 - ?1 AND (free OR (NOT forever AND until IS NULL))
        AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = windlass_keys.job))

-- What outlived its job, a page of each: names, steps and signals of jobs that are gone, and keys that refuse nobody.
--   ?1 the history in microseconds   ?2 now   ?3 page
DELETE FROM windlass_links
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_links AS old
         WHERE old.at < ?2 - ?1
           AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = old.job)
           AND NOT EXISTS (SELECT 1 FROM windlass_history AS history WHERE history.id = old.job)
         LIMIT ?3)
-- then
DELETE FROM windlass_steps
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_steps AS old
         WHERE old.at < ?2 - ?1
           AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = old.job)
           AND NOT EXISTS (SELECT 1 FROM windlass_history AS history WHERE history.id = old.job)
         LIMIT ?3)
-- then
DELETE FROM windlass_signals
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_signals AS old
         WHERE old.at < ?2 - ?1
           AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = old.job)
           AND NOT EXISTS (SELECT 1 FROM windlass_history AS history WHERE history.id = old.job)
         LIMIT ?3)
-- then
DELETE FROM windlass_keys
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_keys AS old
         WHERE old.until <= ?2
            OR (old.ended_at < ?2 - ?1 AND (old.free OR (NOT old.forever AND old.until IS NULL))
                AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = old.job))
         LIMIT ?3)

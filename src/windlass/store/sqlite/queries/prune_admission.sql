-- What admission left behind, a page of each: turnstiles nobody came through for an hour, ledger rows and ticks whose
-- time has passed.   ?1 the history in microseconds   ?2 now   ?3 page
DELETE FROM windlass_turnstiles
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_turnstiles AS old
         WHERE old.touched_at < ?2 - 3600 * 1000000 AND old.used = 0 AND old.next_at < ?2
           AND coalesce(old.held_until, 0) <= ?2
           AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.parked_on = old.key)
         LIMIT ?3)
-- then
-- At least for two months: a budget that is set counts what its window has cost already.
DELETE FROM windlass_ledger
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_ledger AS old
         WHERE old.at < ?2 - max(?1, 62 * 24 * 3600 * 1000000)
           AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = old.job)
           AND NOT EXISTS (SELECT 1 FROM windlass_history AS history WHERE history.id = old.job)
         LIMIT ?3)
-- then
DELETE FROM windlass_ticks
 WHERE rowid IN (SELECT old.rowid FROM windlass_ticks AS old WHERE old.noted_at < ?2 - ?1 LIMIT ?3)

-- Schedules and their ticks.

-- name: declare_schedules
-- Write the schedules that a program declares. A timetable that has not changed, or that has an operator's edit, leaves
-- the next tick where it is; `next` is for the others.
--   ?1 [{name, declared, next}]   ?2 now
INSERT INTO windlass_schedules (name, declared, next_at, declared_at, updated_at)
SELECT new.value ->> 'name', new.value -> 'declared', new.value ->> 'next', ?2, ?2
  FROM json_each(?1) AS new
 WHERE true
    ON CONFLICT (name) DO UPDATE
   SET declared = excluded.declared,
       next_at = CASE WHEN windlass_schedules.declared -> 'timing' = excluded.declared -> 'timing'
                        OR windlass_schedules.edited ->> 'timing' IS NOT NULL
                      THEN windlass_schedules.next_at ELSE excluded.next_at END,
       declared_at = ?2, updated_at = ?2
 WHERE windlass_schedules.declared <> excluded.declared

-- name: schedules
-- Schedules, one by name or all. Times are microseconds since the epoch.
--   ?1 [name], null for all   ?2 now
SELECT name, declared, edited, edited_by, paused, paused_by, paused_at, reason, next_at, last_at, last_job, ?2
  FROM windlass_schedules
 WHERE ?1 ->> 0 IS NULL OR name = ?1 ->> 0
 ORDER BY name

-- name: due_schedules
-- Seconds until these schedules tick, without those that are paused or never tick again. A schedule that changed or
-- ticked more than an hour ahead of the clock is due: `set_schedule_back` has to correct it.
--   ?1 [name]   ?2 now
SELECT name, iif(max(updated_at, coalesce(last_at, 0)) > ?2 + 3600000000, 0.0, (next_at - ?2) / 1000000.0)
  FROM windlass_schedules
 WHERE name IN (SELECT value FROM json_each(?1)) AND NOT paused AND next_at IS NOT NULL
 ORDER BY next_at

-- name: lock_due_schedule
-- One schedule that is due, in the transaction that fires it, which has the write lock. The columns of `schedules`,
-- then the last tick that was recorded, and whether the clock was set back since.
--   ?1 [name]   ?2 now
SELECT name, declared, edited, edited_by, paused, paused_by, paused_at, reason, next_at, last_at, last_job, ?2,
       (SELECT max(at) FROM windlass_ticks
         WHERE windlass_ticks.schedule = windlass_schedules.name AND outcome <> 'by hand'),
       max(updated_at, coalesce(last_at, 0)) > ?2 + 3600000000
  FROM windlass_schedules
 WHERE name = ?1 ->> 0 AND NOT paused
   AND (next_at <= ?2 OR max(updated_at, coalesce(last_at, 0)) > ?2 + 3600000000)

-- name: lock_schedule
-- One schedule, in the transaction that changes it, which has the write lock. The columns of `schedules`.
--   ?1 [name]   ?2 now
SELECT name, declared, edited, edited_by, paused, paused_by, paused_at, reason, next_at, last_at, last_job, ?2
  FROM windlass_schedules
 WHERE name = ?1 ->> 0

-- name: move_schedule
-- Move a schedule on from a tick. Only the transaction that changes the row may fire the tick.
--   ?1 [{name, old, new}], in microseconds since the epoch   ?2 now
UPDATE windlass_schedules
   SET next_at = ?1 ->> '$[0].new', updated_at = ?2
 WHERE name = ?1 ->> '$[0].name' AND NOT paused AND next_at = ?1 ->> '$[0].old'
RETURNING name

-- name: record_ticks
-- Record what became of ticks. The schedule's row keeps the last one that fired.
--   ?1 [{schedule, at, outcome, job, reason}]   ?2 now
INSERT INTO windlass_ticks (schedule, at, outcome, job, noted_at, reason)
SELECT value ->> 'schedule', value ->> 'at', value ->> 'outcome', value ->> 'job', ?2, value ->> 'reason'
  FROM json_each(?1)
-- then
UPDATE windlass_schedules SET last_at = last.at, last_job = last.job
  FROM (SELECT value ->> 'schedule' AS schedule, max(value ->> 'at') AS at, value ->> 'job' AS job
          FROM json_each(?1)
         WHERE value ->> 'outcome' = 'fired'
         GROUP BY 1) AS last
 WHERE windlass_schedules.name = last.schedule

-- name: ticks
-- What became of a schedule's ticks, newest first; each kind has an index of its own.
--   ?1 [{schedule, page}]
SELECT at, outcome, job, noted_at, reason FROM (
    SELECT * FROM (SELECT at, outcome, job, noted_at, reason FROM windlass_ticks
                    WHERE schedule = ?1 ->> '$[0].schedule' AND outcome <> 'by hand'
                    ORDER BY at DESC LIMIT ?1 ->> '$[0].page')
    UNION ALL
    SELECT * FROM (SELECT at, outcome, job, noted_at, reason FROM windlass_ticks
                    WHERE schedule = ?1 ->> '$[0].schedule' AND outcome = 'by hand'
                    ORDER BY at DESC LIMIT ?1 ->> '$[0].page'))
 ORDER BY at DESC, noted_at DESC
 LIMIT ?1 ->> '$[0].page'

-- name: set_schedule
-- Write an operator's change to a schedule.
--   ?1 [{name, edited, edited_by, paused, paused_by, reason, next}], `next` in microseconds since the epoch   ?2 now
UPDATE windlass_schedules
   SET edited = CASE WHEN ?1 ->> '$[0].edited' IS NULL THEN NULL ELSE ?1 -> '$[0].edited' END,
       edited_by = ?1 ->> '$[0].edited_by',
       paused = ?1 ->> '$[0].paused', paused_by = ?1 ->> '$[0].paused_by', reason = ?1 ->> '$[0].reason',
       paused_at = CASE WHEN ?1 ->> '$[0].paused' THEN coalesce(paused_at, ?2) END,
       next_at = ?1 ->> '$[0].next', updated_at = ?2
 WHERE name = ?1 ->> '$[0].name'

-- name: delete_schedule
-- Delete a schedule; the records of its ticks are deleted with the history.
--   ?1 [name]
DELETE FROM windlass_schedules WHERE name = ?1 ->> 0 RETURNING name

-- name: schedule_clock
-- The time now, in microseconds since the epoch.
--   ?2 now
SELECT ?2

-- name: set_schedule_back
-- The clock was set back: a schedule goes on with its next tick from now. Records of ticks in the clock's future are
-- deleted, as those ticks could otherwise not fire when their time comes again.
--   ?1 [{name, next}], in microseconds since the epoch   ?2 now
DELETE FROM windlass_ticks WHERE schedule = ?1 ->> '$[0].name' AND at > ?2 AND outcome <> 'by hand'
-- then
UPDATE windlass_schedules
   SET next_at = ?1 ->> '$[0].next', last_at = iif(last_at <= ?2, last_at, NULL), updated_at = ?2
 WHERE name = ?1 ->> '$[0].name'

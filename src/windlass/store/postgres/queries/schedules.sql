-- Schedules and their ticks.

-- fragment: schedule_columns
-- A schedule's record. Times are microseconds since the epoch, because the program compares them later and exactly.
name, declared::text, edited::text, edited_by, paused, paused_by,
       (extract(epoch FROM paused_at) * 1000000)::bigint, reason,
       (extract(epoch FROM next_at) * 1000000)::bigint, (extract(epoch FROM last_at) * 1000000)::bigint, last_job,
       (extract(epoch FROM windlass.now()) * 1000000)::bigint

-- fragment: ahead_of_clock
-- A schedule that changed or ticked more than an hour in the future of the clock: the clock was set back since.
greatest(updated_at, last_at) > windlass.now() + interval '1 hour'

-- name: declare_schedules
-- Write what a program declares about its schedules.
--
--   $1 [{name, declared, next}], `next` in microseconds since the epoch
--
-- The next tick stays where it is if the timetable has not changed, or if an operator's edit replaces it; `next` is for
-- the other schedules. In the order of names, because two programs may declare the same ones.
INSERT INTO windlass.schedules (name, declared, next_at)
SELECT name, declared, timestamptz 'epoch' + next * interval '1 microsecond'
  FROM json_to_recordset(CAST($1 AS json)) AS new (name text, declared json, next bigint)
 ORDER BY name
    ON CONFLICT (name) DO UPDATE
   SET declared = excluded.declared,
       next_at = CASE WHEN schedules.declared ->> 'timing' = excluded.declared ->> 'timing'
                        OR schedules.edited ->> 'timing' IS NOT NULL
                      THEN schedules.next_at ELSE excluded.next_at END,
       declared_at = windlass.now(), updated_at = windlass.now()
 WHERE schedules.declared::text IS DISTINCT FROM excluded.declared::text

-- name: schedules
-- List schedules.
--
--   $1 [name]; [null]: all
SELECT {schedule_columns}
  FROM windlass.schedules
 WHERE CAST($1 AS json) ->> 0 IS NULL OR name = CAST($1 AS json) ->> 0
 ORDER BY name

-- name: due_schedules
-- Return the seconds until these schedules tick, without those that are paused or never tick again. A schedule that is
-- ahead of the clock is due: it has to be set back (`set_schedule_back`).
--
--   $1 [name]
SELECT name, CASE WHEN {ahead_of_clock} THEN 0.0
                  ELSE extract(epoch FROM next_at - windlass.now())::float8 END
  FROM windlass.schedules
 WHERE name IN (SELECT json_array_elements_text(CAST($1 AS json))) AND NOT paused AND next_at IS NOT NULL
 ORDER BY next_at

-- name: lock_due_schedule
-- Lock one schedule that is due, for the worker that fires it. Returns its record, its last recorded tick, and whether
-- the clock was set back since.
--
--   $1 [name]
--
-- A schedule that another worker has locked is skipped: its ticks belong to that worker. A worker that freezes while it
-- holds the lock blocks this schedule for the seconds that are set here, until its session is ended.
WITH bounded AS MATERIALIZED (
    SELECT set_config('idle_in_transaction_session_timeout', '5s', true)
)
SELECT {schedule_columns},
       (extract(epoch FROM (SELECT max(at) FROM windlass.ticks
                             WHERE ticks.schedule = schedules.name AND outcome <> 'by hand')) * 1000000)::bigint,
       {ahead_of_clock}
  FROM windlass.schedules
 CROSS JOIN bounded
 WHERE name = CAST($1 AS json) ->> 0 AND NOT paused
   AND (next_at <= windlass.now() OR {ahead_of_clock})
   FOR UPDATE OF schedules SKIP LOCKED

-- name: lock_schedule
-- Lock one schedule, for the transaction that changes it.
--
--   $1 [name]
SELECT {schedule_columns}
  FROM windlass.schedules
 WHERE name = CAST($1 AS json) ->> 0
   FOR UPDATE

-- name: move_schedule
-- Move a schedule on from a tick. The tick belongs to the transaction that changes the row, and to no other.
--
--   $1 [{name, old, new}], in microseconds since the epoch
UPDATE windlass.schedules
   SET next_at = timestamptz 'epoch' + moved.new * interval '1 microsecond', updated_at = windlass.now()
  FROM json_to_recordset(CAST($1 AS json)) AS moved (name text, old bigint, new bigint)
 WHERE schedules.name = moved.name AND NOT schedules.paused
   AND schedules.next_at = timestamptz 'epoch' + moved.old * interval '1 microsecond'
RETURNING schedules.name

-- name: record_ticks
-- Record what became of ticks. The last tick that fired is kept with its schedule.
--
--   $1 [{schedule, at, outcome, job, reason}], `at` in microseconds since the epoch
WITH new AS MATERIALIZED (
    SELECT schedule, timestamptz 'epoch' + at * interval '1 microsecond' AS at, outcome, job, reason
      FROM json_to_recordset(CAST($1 AS json)) AS new (schedule text, at bigint, outcome text, job uuid, reason text)
), recorded AS (
    INSERT INTO windlass.ticks (schedule, at, outcome, job, reason)
    SELECT schedule, at, outcome, job, reason FROM new
)
UPDATE windlass.schedules SET last_at = last.at, last_job = last.job
  FROM (SELECT DISTINCT ON (schedule) schedule, at, job FROM new WHERE outcome = 'fired'
         ORDER BY schedule, at DESC) AS last
 WHERE schedules.name = last.schedule

-- name: ticks
-- List what became of a schedule's ticks, newest first. Ticks of the timetable and ticks by hand have an index each.
--
--   $1 [{schedule, page}]
WITH asked AS MATERIALIZED (
    SELECT schedule, page FROM json_to_recordset(CAST($1 AS json)) AS asked (schedule text, page int)
), found AS (
    (SELECT at, outcome, job, noted_at, ticks.reason FROM windlass.ticks
      WHERE schedule = (SELECT schedule FROM asked) AND outcome <> 'by hand'
      ORDER BY at DESC LIMIT (SELECT page FROM asked))
    UNION ALL
    (SELECT at, outcome, job, noted_at, ticks.reason FROM windlass.ticks
      WHERE schedule = (SELECT schedule FROM asked) AND outcome = 'by hand'
      ORDER BY at DESC LIMIT (SELECT page FROM asked))
)
SELECT (extract(epoch FROM at) * 1000000)::bigint, outcome, job, (extract(epoch FROM noted_at) * 1000000)::bigint,
       reason
  FROM found
 ORDER BY at DESC, noted_at DESC
 LIMIT (SELECT page FROM asked)

-- name: set_schedule
-- Write what an operator changed of a schedule that is locked.
--
--   $1 [{name, edited, edited_by, paused, paused_by, reason, next}], `next` in microseconds since the epoch
UPDATE windlass.schedules
   SET edited = new.edited, edited_by = new.edited_by,
       paused = new.paused, paused_by = new.paused_by, reason = new.reason,
       paused_at = CASE WHEN new.paused THEN coalesce(schedules.paused_at, windlass.now()) END,
       next_at = timestamptz 'epoch' + new.next * interval '1 microsecond', updated_at = windlass.now()
  FROM json_to_recordset(CAST($1 AS json))
       AS new (name text, edited json, edited_by text, paused boolean, paused_by text, reason text, next bigint)
 WHERE schedules.name = new.name

-- name: delete_schedule
-- Delete a schedule. The records of its ticks are pruned with the history.
--
--   $1 [name]
DELETE FROM windlass.schedules WHERE name = CAST($1 AS json) ->> 0 RETURNING name

-- name: schedule_clock
-- Read the clock, in microseconds since the epoch.
SELECT (extract(epoch FROM windlass.now()) * 1000000)::bigint

-- name: set_schedule_back
-- Set a schedule back after the clock was set back: it goes on with its next tick from now. The records of ticks in the
-- future of the clock are deleted; otherwise these ticks could not fire when their time comes.
--
--   $1 [{name, next}], `next` in microseconds since the epoch
WITH set_back AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS set_back (name text, next bigint)
), ticks_deleted AS (
    DELETE FROM windlass.ticks
     WHERE schedule = (SELECT name FROM set_back) AND at > windlass.now() AND outcome <> 'by hand'
)
UPDATE windlass.schedules
   SET next_at = timestamptz 'epoch' + (SELECT next FROM set_back) * interval '1 microsecond',
       last_at = CASE WHEN last_at <= windlass.now() THEN last_at END, updated_at = windlass.now()
 WHERE name = (SELECT name FROM set_back)

-- Schedules and their ticks.

-- name: declare_schedules
-- What a program says about its schedules. A timetable that has not changed, or that was edited over, leaves the next
-- tick where it is; `next` is for the others. In order of names, as two programs may declare the same ones.
--   $1 [{name, declared, next}]
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
-- Schedules, by name or all of them. Times are microseconds since the epoch: what is compared later is exact.   $1 [name]
SELECT name, declared::text, edited::text, edited_by, paused, paused_by,
       (extract(epoch FROM paused_at) * 1000000)::bigint, reason,
       (extract(epoch FROM next_at) * 1000000)::bigint, (extract(epoch FROM last_at) * 1000000)::bigint, last_job,
       (extract(epoch FROM windlass.now()) * 1000000)::bigint
  FROM windlass.schedules
 WHERE CAST($1 AS json) ->> 0 IS NULL OR name = CAST($1 AS json) ->> 0
 ORDER BY name

-- name: due_schedules
-- Seconds until these schedules tick; those that are paused, or never tick again, are left out. One that changed or ticked
-- more than an hour in the future of the clock is due: it has to be turned back (turn_back.sql).   $1 [name]
SELECT name, CASE WHEN greatest(updated_at, last_at) > windlass.now() + interval '1 hour' THEN 0.0
                  ELSE extract(epoch FROM next_at - windlass.now())::float8 END
  FROM windlass.schedules
 WHERE name IN (SELECT json_array_elements_text(CAST($1 AS json))) AND NOT paused AND next_at IS NOT NULL
 ORDER BY next_at

-- name: lock_due_schedule
-- One schedule that is due, kept for whoever fires it; the columns of schedules.sql, the last tick that was noted, and whether the
-- clock was set back since.
-- Whoever is at it already is left alone: their ticks are theirs. A worker that freezes in the middle keeps others from
-- this schedule for the seconds that are set here, until its session is ended.   $1 [name]
WITH bounded AS MATERIALIZED (
    SELECT set_config('idle_in_transaction_session_timeout', '5s', true)
)
SELECT name, declared::text, edited::text, edited_by, paused, paused_by,
       (extract(epoch FROM paused_at) * 1000000)::bigint, reason,
       (extract(epoch FROM next_at) * 1000000)::bigint, (extract(epoch FROM last_at) * 1000000)::bigint, last_job,
       (extract(epoch FROM windlass.now()) * 1000000)::bigint,
       (extract(epoch FROM (SELECT max(at) FROM windlass.ticks
                             WHERE ticks.schedule = schedules.name AND outcome <> 'by hand')) * 1000000)::bigint,
       greatest(updated_at, last_at) > windlass.now() + interval '1 hour'
  FROM windlass.schedules
 CROSS JOIN bounded
 WHERE name = CAST($1 AS json) ->> 0 AND NOT paused
   AND (next_at <= windlass.now() OR greatest(updated_at, last_at) > windlass.now() + interval '1 hour')
   FOR UPDATE OF schedules SKIP LOCKED

-- name: lock_schedule
-- One schedule, kept for whoever changes it; the columns of schedules.sql.   $1 [name]
SELECT name, declared::text, edited::text, edited_by, paused, paused_by,
       (extract(epoch FROM paused_at) * 1000000)::bigint, reason,
       (extract(epoch FROM next_at) * 1000000)::bigint, (extract(epoch FROM last_at) * 1000000)::bigint, last_job,
       (extract(epoch FROM windlass.now()) * 1000000)::bigint
  FROM windlass.schedules
 WHERE name = CAST($1 AS json) ->> 0
   FOR UPDATE

-- name: move_schedule
-- Move a schedule on from a tick. The tick belongs to whoever changes the row, and to nobody else.
--   $1 [{name, old, new}], in microseconds since the epoch
UPDATE windlass.schedules
   SET next_at = timestamptz 'epoch' + moved.new * interval '1 microsecond', updated_at = windlass.now()
  FROM json_to_recordset(CAST($1 AS json)) AS moved (name text, old bigint, new bigint)
 WHERE schedules.name = moved.name AND NOT schedules.paused
   AND schedules.next_at = timestamptz 'epoch' + moved.old * interval '1 microsecond'
RETURNING schedules.name

-- name: record_ticks
-- What became of ticks; the last that fired is kept with its schedule.   $1 [{schedule, at, outcome, job, reason}]
WITH new AS MATERIALIZED (
    SELECT schedule, timestamptz 'epoch' + at * interval '1 microsecond' AS at, outcome, job, reason
      FROM json_to_recordset(CAST($1 AS json)) AS new (schedule text, at bigint, outcome text, job uuid, reason text)
), noted AS (
    INSERT INTO windlass.ticks (schedule, at, outcome, job, reason)
    SELECT schedule, at, outcome, job, reason FROM new
)
UPDATE windlass.schedules SET last_at = last.at, last_job = last.job
  FROM (SELECT DISTINCT ON (schedule) schedule, at, job FROM new WHERE outcome = 'fired'
         ORDER BY schedule, at DESC) AS last
 WHERE schedules.name = last.schedule

-- name: ticks
-- What became of a schedule's ticks, newest first; each kind has an index of its own.   $1 [{schedule, page}]
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
SELECT (extract(epoch FROM at) * 1000000)::bigint, outcome, job, (extract(epoch FROM noted_at) * 1000000)::bigint, reason
  FROM found
 ORDER BY at DESC, noted_at DESC
 LIMIT (SELECT page FROM asked)

-- name: set_schedule
-- What an operator changed of a schedule that is locked.
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
-- Forget a schedule; what became of its ticks passes with the history.   $1 [name]
DELETE FROM windlass.schedules WHERE name = CAST($1 AS json) ->> 0 RETURNING name

-- name: schedule_clock
-- What time it is, in microseconds since the epoch.   $1 []
SELECT (extract(epoch FROM windlass.now()) * 1000000)::bigint FROM json_array_length(CAST($1 AS json))

-- name: set_schedule_back
-- The clock was set back: a schedule goes on with its next tick from now. What was noted of ticks in the future of the clock
-- is forgotten, or they could not fire when their time comes.   $1 [{name, next}], in microseconds since the epoch
WITH turned AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS turned (name text, next bigint)
), forgotten AS (
    DELETE FROM windlass.ticks
     WHERE schedule = (SELECT name FROM turned) AND at > windlass.now() AND outcome <> 'by hand'
)
UPDATE windlass.schedules
   SET next_at = timestamptz 'epoch' + (SELECT next FROM turned) * interval '1 microsecond',
       last_at = CASE WHEN last_at <= windlass.now() THEN last_at END, updated_at = windlass.now()
 WHERE name = (SELECT name FROM turned)

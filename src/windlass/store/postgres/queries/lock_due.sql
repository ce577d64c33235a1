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

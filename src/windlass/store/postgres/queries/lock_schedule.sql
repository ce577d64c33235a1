-- One schedule, kept for whoever changes it; the columns of schedules.sql.   $1 [name]
SELECT name, declared::text, edited::text, edited_by, paused, paused_by,
       (extract(epoch FROM paused_at) * 1000000)::bigint, reason,
       (extract(epoch FROM next_at) * 1000000)::bigint, (extract(epoch FROM last_at) * 1000000)::bigint, last_job,
       (extract(epoch FROM windlass.now()) * 1000000)::bigint
  FROM windlass.schedules
 WHERE name = CAST($1 AS json) ->> 0
   FOR UPDATE

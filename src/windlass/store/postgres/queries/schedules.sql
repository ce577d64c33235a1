-- Schedules, by name or all of them. Times are microseconds since the epoch: what is compared later is exact.   $1 [name]
SELECT name, declared::text, edited::text, edited_by, paused, paused_by,
       (extract(epoch FROM paused_at) * 1000000)::bigint, reason,
       (extract(epoch FROM next_at) * 1000000)::bigint, (extract(epoch FROM last_at) * 1000000)::bigint, last_job,
       (extract(epoch FROM windlass.now()) * 1000000)::bigint
  FROM windlass.schedules
 WHERE CAST($1 AS json) ->> 0 IS NULL OR name = CAST($1 AS json) ->> 0
 ORDER BY name

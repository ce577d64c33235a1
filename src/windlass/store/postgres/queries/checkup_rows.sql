-- Claimable jobs that no claim takes (sound.sql says which), with the id of one; and how many seconds the newest time in
-- the store lies ahead of the clock.
WITH odd AS MATERIALIZED (
    SELECT id FROM windlass.jobs
     WHERE status IN ('queued', 'failed')
       AND (fence >= 9223372036854775806 OR attempt >= 2147483646
            OR least(run_at, created_at, finished_at) < '0001-01-01 00:00+00'
            OR greatest(created_at, finished_at) > '9999-12-31 23:59:59+00' OR run_at = 'infinity')
), newest AS MATERIALIZED (
    SELECT greatest(max(created_at), max(updated_at), (SELECT max(seen_at) FROM windlass.installation)) AS at
      FROM windlass.jobs
     WHERE created_at < windlass.now() + interval '10 years' AND updated_at < windlass.now() + interval '10 years'
)
SELECT (SELECT count(*) FROM odd) AS odd, (SELECT min(id::text) FROM odd) AS example,
       extract(epoch FROM newest.at - windlass.now())::float8 AS ahead
  FROM newest

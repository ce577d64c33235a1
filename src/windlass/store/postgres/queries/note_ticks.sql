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

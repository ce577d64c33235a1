-- What became of ticks; the last that fired is kept with its schedule.   ?1 [{schedule, at, outcome, job, reason}]   ?2 now
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

-- What a program says about its limits and rates; keys in use learn it too.   ?1 [{name, most, period, burst}]   ?2 now
--
-- Jobs that were claimed before their limit was one hold a slot all the same, for each will give one back: they are
-- counted here, when a rate becomes a limit and when a name is new. From then on every claim counts its own.
UPDATE windlass_turnstiles
   SET most = new.most, period = new.period, burst = new.burst,
       used = CASE WHEN new.most IS NULL THEN 0
                   WHEN windlass_turnstiles.most IS NOT NULL THEN used
                   ELSE (SELECT count(*)
                           FROM windlass_jobs AS jobs INDEXED BY windlass_jobs_running, json_each(jobs.limits) AS need
                          WHERE jobs.status = 'running' AND need.value = windlass_turnstiles.key) END
  FROM (SELECT value ->> 'name' AS name, value ->> 'most' AS most, value ->> 'period' AS period,
               value ->> 'burst' AS burst
          FROM json_each(?1)) AS new
  JOIN windlass_limits AS known ON known.name = new.name
 WHERE windlass_turnstiles.name = new.name
   AND (known.most, known.period, known.burst) IS NOT (new.most, new.period, new.burst)
-- then
INSERT INTO windlass_turnstiles (key, name, most, used, period, burst, touched_at)
SELECT held.key, new.name, new.most, iif(new.most IS NULL, 0, held.jobs), new.period, new.burst, ?2
  FROM (SELECT value ->> 'name' AS name, value ->> 'most' AS most, value ->> 'period' AS period,
               value ->> 'burst' AS burst
          FROM json_each(?1)
         WHERE value ->> 'name' NOT IN (SELECT name FROM windlass_limits)) AS new
  JOIN (SELECT need.value AS key, count(*) AS jobs
          FROM windlass_jobs AS jobs INDEXED BY windlass_jobs_running, json_each(jobs.limits) AS need
         WHERE jobs.status = 'running'
         GROUP BY need.value) AS held
    ON new.name = substr(held.key, 1, instr(held.key || ':', ':') - 1)
 WHERE true
    ON CONFLICT (key) DO NOTHING
-- then
INSERT INTO windlass_limits (name, most, period, burst, declared_at)
SELECT value ->> 'name', value ->> 'most', value ->> 'period', value ->> 'burst', ?2
  FROM json_each(?1)
 WHERE true
    ON CONFLICT (name) DO UPDATE
   SET most = excluded.most, period = excluded.period, burst = excluded.burst, declared_at = excluded.declared_at
 WHERE (windlass_limits.most, windlass_limits.period, windlass_limits.burst)
       IS NOT (excluded.most, excluded.period, excluded.burst)

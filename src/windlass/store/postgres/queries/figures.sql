-- Figures: folded by the leader, and read. `finish.sql` writes them.

-- fragment: figure_sums
-- The sums of figures, for a group of rows.
sum(succeeded)::bigint AS succeeded, sum(advanced)::bigint AS advanced, sum(failed)::bigint AS failed,
           sum(dead)::bigint AS dead, sum(cancelled)::bigint AS cancelled, sum(run_seconds) AS run_seconds,
           sum(wait_seconds) AS wait_seconds, windlass.total(runs) AS runs, windlass.total(waits) AS waits

-- name: fold_figures
-- Fold the rows of spans that are over into one per span, queue and phase, and rows older than two hours into minutes.
-- Returns how many rows were folded.
--
--   $1 whether to look for rows to fold into minutes: this reads all rows
--
-- Each row is deleted by one statement, which adds it up: two leaders count nothing twice. A transaction that commits
-- after its span was folded leaves a row for the next fold.
WITH over AS (
    DELETE FROM windlass.figures
     WHERE worker <> '00000000-0000-0000-0000-000000000000'
       AND at < to_timestamp(floor(extract(epoch FROM windlass.now())::float8 / 10) * 10)
 RETURNING *
), old AS (
    DELETE FROM windlass.figures
     WHERE $1::boolean AND worker = '00000000-0000-0000-0000-000000000000'
       AND at < windlass.now() - interval '2 hours' AND extract(epoch FROM at)::bigint % 60 <> 0
 RETURNING *
), folded AS (
    INSERT INTO windlass.figures AS known (
        at, worker, queue, phase, succeeded, advanced, failed, dead, cancelled, run_seconds, wait_seconds, runs, waits)
    SELECT CASE WHEN at < windlass.now() - interval '2 hours'
                THEN to_timestamp(floor(extract(epoch FROM at)::float8 / 60) * 60) ELSE at END AS target,
           '00000000-0000-0000-0000-000000000000', queue, phase, {figure_sums}
      FROM (SELECT * FROM over UNION ALL SELECT * FROM old) AS taken
     GROUP BY target, queue, phase
     ORDER BY target, queue, phase
    ON CONFLICT (at, worker, queue, phase) DO UPDATE
       SET succeeded = known.succeeded + excluded.succeeded, advanced = known.advanced + excluded.advanced,
           failed = known.failed + excluded.failed, dead = known.dead + excluded.dead,
           cancelled = known.cancelled + excluded.cancelled, run_seconds = known.run_seconds + excluded.run_seconds,
           wait_seconds = known.wait_seconds + excluded.wait_seconds,
           runs = windlass.add_up(known.runs, excluded.runs), waits = windlass.add_up(known.waits, excluded.waits)
)
SELECT (SELECT count(*) FROM over) + (SELECT count(*) FROM old)

-- name: drop_figures
-- Delete figures and depths that are too old.
--
--   $1 seconds for which they are kept
WITH figures AS (
    DELETE FROM windlass.figures WHERE at < windlass.now() - make_interval(secs => $1::float8)
)
DELETE FROM windlass.depths WHERE at < windlass.now() - make_interval(secs => $1::float8)

-- name: sample_depths
-- Write the depth of each queue, as `queues` counted it; a second sample of the same span changes nothing.
--
--   $1 [{queue, queued, running, failed, waiting, dead, lag}]
INSERT INTO windlass.depths (at, queue, queued, running, failed, waiting, dead, lag)
SELECT to_timestamp(floor(extract(epoch FROM windlass.now())::float8 / 10) * 10), sample.*
  FROM json_to_recordset(CAST($1 AS json)) AS sample (
        queue text, queued bigint, running bigint, failed bigint, waiting bigint, dead bigint, lag float8)
ON CONFLICT (at, queue) DO NOTHING

-- name: figures
-- Read figures in steps, oldest first.
--
--   $1 seconds back from now   $2 seconds of a step   $3 queue; null: every queue
SELECT to_timestamp(floor(extract(epoch FROM at)::float8 / $2::float8) * $2::float8) AS step, queue, phase, {figure_sums}
  FROM windlass.figures
 WHERE at >= windlass.now() - make_interval(secs => $1::float8) AND ($3::text IS NULL OR queue = $3::text)
 GROUP BY step, queue, phase
 ORDER BY step, queue, phase

-- name: depths
-- Read samples of depths, oldest first: the last one of each step.
--
--   $1 seconds back from now   $2 queue; null: every queue   $3 seconds of a step
SELECT DISTINCT ON (floor(extract(epoch FROM at)::float8 / $3::float8), queue)
       at, queue, queued, running, failed, waiting, dead, lag
  FROM windlass.depths
 WHERE at >= windlass.now() - make_interval(secs => $1::float8) AND ($2::text IS NULL OR queue = $2::text)
 ORDER BY floor(extract(epoch FROM at)::float8 / $3::float8), queue, at DESC

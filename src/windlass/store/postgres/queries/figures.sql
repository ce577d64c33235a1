-- Figures: folded by the leader, and read. `finish.sql` writes them.

-- fragment: figure_span
-- The seconds of a row by its age: 10 s, a minute after half an hour, ten minutes after a day. A read of a range and of
-- the range before it adds up thousands of rows, and not tens of thousands.
CASE WHEN at < windlass.now() - interval '1 day' THEN 600
                WHEN at < windlass.now() - interval '30 minutes' THEN 60 ELSE 10 END

-- fragment: figure_sums
-- The sums of figures, for a group of rows. Each bucket of the histograms is a sum of its own: windlass.total() would
-- call a function for each row, and takes four times as long. A row of an end without an attempt has no buckets.
sum(succeeded)::bigint AS succeeded, sum(advanced)::bigint AS advanced, sum(failed)::bigint AS failed,
           sum(dead)::bigint AS dead, sum(cancelled)::bigint AS cancelled, sum(run_seconds) AS run_seconds,
           sum(wait_seconds) AS wait_seconds,
           array_replace(ARRAY[
               sum(runs[1]), sum(runs[2]), sum(runs[3]), sum(runs[4]), sum(runs[5]), sum(runs[6]),
               sum(runs[7]), sum(runs[8]), sum(runs[9]), sum(runs[10]), sum(runs[11]), sum(runs[12]),
               sum(runs[13]), sum(runs[14]), sum(runs[15]), sum(runs[16]), sum(runs[17]), sum(runs[18]),
               sum(runs[19]), sum(runs[20]), sum(runs[21]), sum(runs[22]), sum(runs[23]), sum(runs[24])]::bigint[], NULL, 0) AS runs,
           array_replace(ARRAY[
               sum(waits[1]), sum(waits[2]), sum(waits[3]), sum(waits[4]), sum(waits[5]), sum(waits[6]),
               sum(waits[7]), sum(waits[8]), sum(waits[9]), sum(waits[10]), sum(waits[11]), sum(waits[12]),
               sum(waits[13]), sum(waits[14]), sum(waits[15]), sum(waits[16]), sum(waits[17]), sum(waits[18]),
               sum(waits[19]), sum(waits[20]), sum(waits[21]), sum(waits[22]), sum(waits[23]), sum(waits[24])]::bigint[], NULL, 0) AS waits

-- name: fold_figures
-- Fold the rows of spans that are over into one per span, queue and phase, and old rows into longer spans. Returns how
-- many rows were folded.
--
--   $1 whether to look for old rows: this reads all rows
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
       AND extract(epoch FROM at)::bigint % ({figure_span}) <> 0
 RETURNING *
), folded AS (
    INSERT INTO windlass.figures AS known (
        at, worker, queue, phase, succeeded, advanced, failed, dead, cancelled, run_seconds, wait_seconds, runs, waits)
    SELECT to_timestamp(extract(epoch FROM at)::bigint / span * span) AS target,
           '00000000-0000-0000-0000-000000000000', queue, phase, {figure_sums}
      FROM (SELECT *, {figure_span} AS span FROM (SELECT * FROM over UNION ALL SELECT * FROM old) AS removed) AS taken
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
--
-- All queues of a sample have the same time. So each step is one look-up of its last time, and then the rows of that
-- time: a day has 8,640 samples, and 120 of them are read for 120 steps.
SELECT sample.at, queue, queued, running, failed, waiting, dead, lag
  FROM generate_series(floor((extract(epoch FROM windlass.now())::float8 - $1::float8) / $3::float8)::bigint,
                       floor(extract(epoch FROM windlass.now())::float8 / $3::float8)::bigint) AS step
 CROSS JOIN LATERAL (
    SELECT at FROM windlass.depths
     WHERE at >= greatest(windlass.now() - make_interval(secs => $1::float8), to_timestamp(step * $3::float8))
       AND at < to_timestamp((step + 1) * $3::float8)
     ORDER BY at DESC LIMIT 1) AS last
 CROSS JOIN LATERAL (
    SELECT * FROM windlass.depths WHERE at = last.at AND ($2::text IS NULL OR queue = $2::text) OFFSET 0) AS sample
 ORDER BY sample.at, queue

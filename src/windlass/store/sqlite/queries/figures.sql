-- Figures: written with the ends of attempts, folded by the leader, and read.

-- fragment: figure_columns
-- The columns of a row, in the order in which every statement writes them.
at, worker, queue, phase, succeeded, advanced, failed, dead, cancelled, run_seconds, wait_seconds, runs, waits

-- fragment: figure_span
-- The microseconds of a row by its age: 10 s, a minute after half an hour, ten minutes after a day.
CASE WHEN at < :now - 86400000000 THEN 600000000 WHEN at < :now - 1800000000 THEN 60000000 ELSE 10000000 END

-- fragment: figure_sums
-- The sums of figures, for a group of rows.
sum(succeeded), sum(advanced), sum(failed), sum(dead), sum(cancelled), sum(run_seconds), sum(wait_seconds),
       sum_of_histograms(runs), sum_of_histograms(waits)

-- fragment: added_up
-- Add a row to the one that is there.
ON CONFLICT (at, worker, queue, phase) DO UPDATE
   SET succeeded = succeeded + excluded.succeeded, advanced = advanced + excluded.advanced,
       failed = failed + excluded.failed, dead = dead + excluded.dead, cancelled = cancelled + excluded.cancelled,
       run_seconds = run_seconds + excluded.run_seconds, wait_seconds = wait_seconds + excluded.wait_seconds,
       runs = add_up(runs, excluded.runs), waits = add_up(waits, excluded.waits)

-- name: attempts_of_jobs
-- What the figures need of running jobs, read before their attempts end.
--   :ids a JSON array
SELECT jobs.id, jobs.worker, jobs.queue, jobs.phase, jobs.run_at
  FROM json_each(:ids) AS ending
  JOIN windlass_jobs AS jobs ON jobs.id = ending.value AND jobs.status = 'running'

-- name: add_figures
-- Add attempts that ended to the figures of this span.
--   :now   :worker   :queue   :phase   :succeeded, :advanced, :failed, :dead, :cancelled, :run_seconds, :wait_seconds
--   :runs, :waits JSON arrays
INSERT INTO windlass_figures ({figure_columns})
VALUES (:now - :now % 10000000, :worker, :queue, :phase, :succeeded, :advanced, :failed, :dead, :cancelled,
        :run_seconds, :wait_seconds, :runs, :waits)
{added_up}

-- name: add_end
-- Add the end of one job that no worker wrote: a new id stands for the worker, and nothing ran or waited.
--   :id   :outcome dead or cancelled   :now
INSERT INTO windlass_figures (at, worker, queue, phase, dead, cancelled, runs, waits)
SELECT :now - :now % 10000000, lower(hex(randomblob(16))), queue, phase, :outcome = 'dead', :outcome = 'cancelled',
       '[]', '[]'
  FROM (SELECT queue, phase FROM windlass_jobs WHERE id = :id
        UNION ALL
        SELECT queue, phase FROM windlass_history WHERE id = :id)

-- name: fold_figures
-- Fold the rows of spans that are over into one per span, queue and phase, and old rows into longer spans.
--   :now   :minutes whether to look for old rows: this reads all rows
--
-- The parts run in one transaction: two leaders count nothing twice.
CREATE TEMP TABLE IF NOT EXISTS folding AS SELECT * FROM windlass_figures WHERE false
-- then
INSERT INTO temp.folding SELECT * FROM windlass_figures
 WHERE worker <> '00000000-0000-0000-0000-000000000000' AND at < :now - :now % 10000000
-- then
INSERT INTO temp.folding SELECT * FROM windlass_figures
 WHERE :minutes AND worker = '00000000-0000-0000-0000-000000000000' AND at % ({figure_span}) <> 0
-- then
DELETE FROM windlass_figures
 WHERE (at, worker, queue, phase) IN (SELECT at, worker, queue, phase FROM temp.folding)
-- then
INSERT INTO windlass_figures ({figure_columns})
SELECT at - at % ({figure_span}) AS target, '00000000-0000-0000-0000-000000000000', queue, phase, {figure_sums}
  FROM temp.folding
 WHERE true
 GROUP BY target, queue, phase
{added_up}
-- then
DELETE FROM temp.folding

-- name: drop_figures
-- Delete figures and depths that are too old.
--   :now   :history for how many microseconds they are kept
DELETE FROM windlass_figures WHERE at < :now - :history
-- then
DELETE FROM windlass_depths WHERE at < :now - :history

-- name: sample_depths
-- Write the depth of each queue, as `queues` counted it; a second sample of the same span changes nothing.
--   ?1 [{queue, queued, running, failed, waiting, dead, lag}]   ?2 now
INSERT INTO windlass_depths (at, queue, queued, running, failed, waiting, dead, lag)
SELECT ?2 - ?2 % 10000000, value ->> 'queue', value ->> 'queued', value ->> 'running', value ->> 'failed',
       value ->> 'waiting', value ->> 'dead', value ->> 'lag'
  FROM json_each(?1)
 WHERE true
ON CONFLICT (at, queue) DO NOTHING

-- name: figures
-- Read figures in steps, oldest first.
--   :now   :since microseconds back from now   :step microseconds of a step   :queue null: every queue
SELECT at - at % :step AS step, queue, phase, {figure_sums}
  FROM windlass_figures
 WHERE at >= :now - :since AND (:queue IS NULL OR queue = :queue)
 GROUP BY step, queue, phase
 ORDER BY step, queue, phase

-- name: depths
-- Read samples of depths, oldest first: the last one of each step. All queues of a sample have the same time: each step is
-- one look-up of its last time, and then the rows of that time.
--   :now   :since microseconds back from now   :queue null: every queue   :step microseconds of a step
WITH RECURSIVE step (number) AS (
    SELECT (:now - :since) / :step
    UNION ALL
    SELECT number + 1 FROM step WHERE number < :now / :step
), last AS MATERIALIZED (
    SELECT (SELECT max(at) FROM windlass_depths
             WHERE at >= max(:now - :since, step.number * :step) AND at < (step.number + 1) * :step) AS at
      FROM step
)
SELECT sample.at, queue, queued, running, failed, waiting, dead, lag
  FROM last
  JOIN windlass_depths AS sample ON sample.at = last.at
 WHERE :queue IS NULL OR queue = :queue
 ORDER BY sample.at, queue

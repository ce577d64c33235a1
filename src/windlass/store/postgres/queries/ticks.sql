-- What became of a schedule's ticks, newest first; each kind has an index of its own.   $1 [{schedule, page}]
WITH asked AS MATERIALIZED (
    SELECT schedule, page FROM json_to_recordset(CAST($1 AS json)) AS asked (schedule text, page int)
), found AS (
    (SELECT at, outcome, job, noted_at, ticks.reason FROM windlass.ticks
      WHERE schedule = (SELECT schedule FROM asked) AND outcome <> 'by hand'
      ORDER BY at DESC LIMIT (SELECT page FROM asked))
    UNION ALL
    (SELECT at, outcome, job, noted_at, ticks.reason FROM windlass.ticks
      WHERE schedule = (SELECT schedule FROM asked) AND outcome = 'by hand'
      ORDER BY at DESC LIMIT (SELECT page FROM asked))
)
SELECT (extract(epoch FROM at) * 1000000)::bigint, outcome, job, (extract(epoch FROM noted_at) * 1000000)::bigint, reason
  FROM found
 ORDER BY at DESC, noted_at DESC
 LIMIT (SELECT page FROM asked)

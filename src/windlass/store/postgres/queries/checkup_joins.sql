-- How many jobs wait, and which of them nothing would ever wake: each kind with its count and one of its jobs. Every
-- write that touches a wait commits with what it depends on, so that one snapshot must never show any of these; only
-- `met` may be seen for a moment, since an arrival leaves a waiter that somebody holds to the next look at the timers.
--   $1  seconds a timer may be late
WITH waiting AS MATERIALIZED (
    SELECT jobs.id, waits.job, waits.need, waits.pending, waits.succeeded, waits.signal, waits.wake_at, edges.*
      FROM windlass.jobs
      LEFT JOIN windlass.waits ON waits.job = jobs.id
      LEFT JOIN LATERAL (
            SELECT count(*) AS edges, count(*) FILTER (WHERE NOT done) AS open,
                   count(*) FILTER (WHERE NOT done AND awaited.id IS NULL) AS ended
              FROM windlass.edges
              LEFT JOIN windlass.jobs AS awaited
                ON awaited.id = edges.awaited AND awaited.status NOT IN ('succeeded', 'dead', 'cancelled')
             WHERE edges.waiter = jobs.id AND edges.fence = waits.fence) AS edges ON true
     WHERE jobs.status = 'waiting'
)
SELECT kind, count(*), min(id::text)
  FROM waiting, LATERAL (
        VALUES ('waiting', true),
               ('nothing', job IS NULL OR (need = 0 AND edges = 0 AND signal IS NULL AND wake_at IS NULL)),
               ('met', need > 0 AND (succeeded >= need OR succeeded + pending < need)),
               ('ended', ended > 0),
               ('miscounted', pending <> open),
               ('signal', EXISTS (SELECT FROM windlass.signals
                                   WHERE signals.job = waiting.job AND signals.name = waiting.signal)),
               ('late', wake_at < windlass.now() - make_interval(secs => $1::float8))) AS kinds (kind, holds)
 WHERE holds
 GROUP BY kind

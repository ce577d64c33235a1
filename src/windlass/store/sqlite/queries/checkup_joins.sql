-- How many jobs wait, and which of them nothing would ever wake: each kind with its count and one of its jobs. Every
-- write that touches a wait commits with what it depends on, so that one snapshot must never show any of these; only
-- `met` may be seen for a moment, since an arrival leaves a waiter that somebody holds to the next look at the timers.
--   :now  :slack, microseconds a timer may be late
WITH waiting AS MATERIALIZED (
    SELECT jobs.id, waits.job, waits.need, waits.pending, waits.succeeded, waits.signal, waits.wake_at,
           (SELECT count(*) FROM windlass_edges AS edges
             WHERE edges.waiter = jobs.id AND edges.fence = waits.fence) AS edges,
           (SELECT count(*) FROM windlass_edges AS edges
             WHERE edges.waiter = jobs.id AND edges.fence = waits.fence AND NOT edges.done) AS open,
           (SELECT count(*)
              FROM windlass_edges AS edges
              LEFT JOIN windlass_jobs AS awaited
                ON awaited.id = edges.awaited AND awaited.status NOT IN ('succeeded', 'dead', 'cancelled')
             WHERE edges.waiter = jobs.id AND edges.fence = waits.fence AND NOT edges.done
               AND awaited.id IS NULL) AS ended
      FROM windlass_jobs AS jobs
      LEFT JOIN windlass_waits AS waits ON waits.job = jobs.id
     WHERE jobs.status = 'waiting'
),
found (kind, id) AS (
    SELECT 'waiting', id FROM waiting
    UNION ALL
    SELECT 'nothing', id FROM waiting
     WHERE job IS NULL OR (need = 0 AND edges = 0 AND signal IS NULL AND wake_at IS NULL)
    UNION ALL
    SELECT 'met', id FROM waiting WHERE need > 0 AND (succeeded >= need OR succeeded + pending < need)
    UNION ALL
    SELECT 'ended', id FROM waiting WHERE ended > 0
    UNION ALL
    SELECT 'miscounted', id FROM waiting WHERE pending <> open
    UNION ALL
    SELECT 'signal', id FROM waiting WHERE EXISTS (
        SELECT 1 FROM windlass_signals AS signals WHERE signals.job = waiting.job AND signals.name = waiting.signal)
    UNION ALL
    SELECT 'late', id FROM waiting WHERE wake_at < :now - :slack
)
SELECT kind, count(*), min(id) FROM found GROUP BY kind

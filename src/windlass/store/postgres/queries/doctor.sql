-- Doctor: what `windlass doctor` reads.

-- name: doctor_schema
-- List the tables of the schema, whichever program made them.
SELECT array_agg(relname::text ORDER BY relname)
  FROM pg_class
 WHERE relnamespace = to_regnamespace('windlass') AND relkind IN ('r', 'p', 'v', 'm')

-- name: doctor_server
-- Read the server in one row: its version, its time, the process that answers, and settings that a promise rests on.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::int AS number,
       extract(epoch FROM clock_timestamp())::float8 AS clock,
       pg_backend_pid() AS pid,
       pg_is_in_recovery() AS standby,
       current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('autovacuum') AS autovacuum,
       pg_has_role('pg_read_all_stats', 'usage') AS sees_all

-- name: doctor_tables
-- Read the tables in one row: autovacuum switched off, dead rows, broken or missing indexes, the history's partitions.
SELECT coalesce((SELECT 'autovacuum_enabled=false' = ANY (reloptions) FROM pg_class
                  WHERE oid = 'windlass.jobs'::regclass), false) AS autovacuum_off,
       (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'windlass.jobs'::regclass) AS dead_rows,
       (SELECT n_live_tup FROM pg_stat_user_tables WHERE relid = 'windlass.jobs'::regclass) AS live_rows,
       ARRAY (SELECT wanted.name
                FROM unnest(ARRAY['jobs_pkey', 'jobs_claim', 'jobs_parked', 'jobs_running', 'jobs_cancel',
                                  'history_id', 'outbox_due', 'outbox_waiting', 'outbox_job']) AS wanted (name)
               WHERE NOT EXISTS (
                      SELECT FROM pg_index
                       WHERE indexrelid = to_regclass('windlass.' || wanted.name) AND indisvalid)) AS broken_indexes,
       EXISTS (SELECT FROM windlass.history_default) AS default_used,
       to_regclass('windlass.history_' || to_char((windlass.now() AT TIME ZONE 'UTC')::date + 1, 'YYYYMMDD'))
           IS NOT NULL AS prepared,
       (SELECT count(*) FROM windlass.workers WHERE NOT dead AND alive_until > windlass.now()) AS alive

-- name: oldest_snapshot
-- Seconds since the oldest transaction of this database began that holds a snapshot or wrote something, prepared ones
-- included; 0 without one. It keeps VACUUM from removing dead rows. Of other users' sessions it sees what it may see.
SELECT coalesce(max(age), 0)::float8
  FROM (SELECT extract(epoch FROM clock_timestamp() - xact_start) AS age
          FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
           AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
        UNION ALL
        SELECT extract(epoch FROM clock_timestamp() - prepared)
          FROM pg_prepared_xacts
         WHERE database = current_database()) AS held

-- name: doctor_snapshots
-- List what keeps VACUUM from removing dead rows: old transactions of this database that hold a snapshot or wrote
-- something, prepared transactions that were never finished, and replication slots that lag behind. A vacuum's own
-- snapshot keeps nothing.
--
--   $1 seconds   $2 transactions
SELECT 'session' AS kind, pid::text AS name, usename::text AS owner, application_name, state,
       extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age, left(query, 80) AS query
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
   AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
   AND xact_start < clock_timestamp() - make_interval(secs => $1::float8)
UNION ALL
SELECT 'prepared', gid, owner::text, NULL, NULL, extract(epoch FROM clock_timestamp() - prepared)::float8, NULL
  FROM pg_prepared_xacts
 WHERE database = current_database() AND prepared < clock_timestamp() - make_interval(secs => $1::float8)
UNION ALL
SELECT 'slot', slot_name::text, NULL, plugin::text, CASE WHEN active THEN 'active' ELSE 'inactive' END,
       greatest(age(xmin), age(catalog_xmin))::float8, NULL
  FROM pg_replication_slots
 WHERE greatest(age(xmin), age(catalog_xmin)) > $2::int
 ORDER BY age DESC
 LIMIT 20

-- name: doctor_rows
-- Count claimable jobs that no claim takes, because their row is not readable, with the id of one; and the seconds that
-- the newest time in the store lies ahead of the clock.
WITH odd AS MATERIALIZED (
    SELECT id FROM windlass.jobs
     WHERE {claimable_status} AND (NOT ({readable}) OR run_at = 'infinity')
), newest AS MATERIALIZED (
    SELECT greatest(max(created_at), max(updated_at), (SELECT max(seen_at) FROM windlass.installation)) AS at
      FROM windlass.jobs
     WHERE created_at < windlass.now() + interval '10 years' AND updated_at < windlass.now() + interval '10 years'
)
SELECT (SELECT count(*) FROM odd) AS odd, (SELECT min(id::text) FROM odd) AS example,
       extract(epoch FROM newest.at - windlass.now())::float8 AS ahead
  FROM newest

-- name: doctor_types
-- List due jobs that no live worker would claim, by type and queue. Jobs are grouped first, so that the workers are
-- read once per group.
WITH due AS MATERIALIZED (
    SELECT type, queue, count(*) AS jobs, min(run_at) AS oldest
      FROM windlass.jobs
     WHERE {overdue}
     GROUP BY type, queue
)
SELECT type, queue, jobs, extract(epoch FROM windlass.now() - oldest)::float8 AS lag
  FROM due
 WHERE NOT EXISTS (
        SELECT FROM windlass.workers
         WHERE NOT dead AND alive_until > windlass.now()
           AND due.type = ANY (types) AND (queues IS NULL OR due.queue = ANY (queues)))
 ORDER BY jobs DESC, type, queue
 LIMIT 20

-- name: doctor_holders
-- List workers that are gone, with the jobs they still hold, longest first: dead or silent workers, and ids without a
-- row.
SELECT workers.name, count(jobs.id) AS jobs,
       greatest(0, extract(epoch FROM windlass.now() - workers.alive_until))::float8 AS silent
  FROM windlass.workers
  LEFT JOIN windlass.jobs ON jobs.worker = workers.id AND jobs.status = 'running'
 WHERE workers.dead OR workers.alive_until <= windlass.now()
 GROUP BY workers.id
UNION ALL
SELECT NULL, count(*), extract(epoch FROM windlass.now() - max(jobs.updated_at))::float8
  FROM windlass.jobs
 WHERE jobs.status = 'running' AND NOT EXISTS (SELECT FROM windlass.workers WHERE workers.id = jobs.worker)
 GROUP BY jobs.worker
 ORDER BY silent DESC

-- name: doctor_joins
-- Count the waiting jobs, and the waiting jobs that nothing would ever wake: each kind with its count and one of its
-- jobs.
--
--   $1 seconds a timer may be late
--
-- Every write that touches a wait commits with what it depends on, so that one snapshot must never show any of these.
-- Only `met` may be seen for a moment: an arrival leaves a waiting job with a locked row to the next check of the
-- timers.
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

-- name: doctor_slots
-- List limits with other used slots than those of running jobs. A claim writes both in one transaction, and so does
-- everything that ends an attempt: one snapshot must never show any of these.
WITH held AS MATERIALIZED (
    SELECT taken.key, count(*)::int AS jobs
      FROM windlass.jobs
     CROSS JOIN LATERAL unnest(jobs.limits) AS taken (key)
     WHERE jobs.status = 'running' AND jobs.limits IS NOT NULL
     GROUP BY taken.key
)
SELECT limit_counters.key, limit_counters.used, coalesce(held.jobs, 0)
  FROM windlass.limit_counters
  LEFT JOIN held ON held.key = limit_counters.key
 WHERE limit_counters.most IS NOT NULL AND limit_counters.counted AND limit_counters.used <> coalesce(held.jobs, 0)
 ORDER BY limit_counters.key

-- name: doctor_parked
-- List keys that have room while jobs are parked on them that a worker could take now: how many, and which comes next.
WITH closed AS MATERIALIZED (
    {closed}
), known AS MATERIALIZED (
    SELECT DISTINCT unnest(types) AS type FROM windlass.workers WHERE NOT dead
)
SELECT jobs.parked_on, count(*)::int,
       (array_agg(jobs.id::text ORDER BY jobs.phase_rank, -jobs.priority, jobs.run_at, jobs.id))[1]
  FROM windlass.jobs
  LEFT JOIN windlass.limit_counters ON limit_counters.key = jobs.parked_on
 WHERE jobs.parked_on IS NOT NULL
   AND (limit_counters.key IS NULL
        OR windlass.room(most, used, period, burst, next_at, held_until) > 0)
   AND (jobs.type IN (SELECT type FROM known) OR NOT EXISTS (SELECT FROM known))
   AND NOT EXISTS (SELECT FROM closed
                    WHERE kind = 'all' OR (kind = 'queue' AND name = jobs.queue)
                       OR (kind = 'type' AND name = jobs.type) OR (kind = 'tenant' AND name = jobs.tenant))
 GROUP BY jobs.parked_on
 ORDER BY jobs.parked_on

-- name: doctor_gates
-- List the gates that are closed, the longest first.
SELECT kind, name, state, reason, actor, greatest(0, extract(epoch FROM windlass.now() - since))::float8 AS age
  FROM windlass.gates
 WHERE state <> 'open'
 ORDER BY since, kind, name

-- name: doctor_budgets
-- List the budgets that are spent in the current window.
SELECT kind, name, cents, CASE WHEN until > windlass.now() THEN spent ELSE 0 END AS spent,
       extract(epoch FROM CASE WHEN until > windlass.now() THEN until ELSE windlass.window_end(seconds) END
           - windlass.now())::float8 AS opens
  FROM windlass.budgets
 WHERE {budget_spent}
 ORDER BY kind, name

-- name: doctor_schedules
-- List schedules with a next tick that should have fired long ago.
--
--   $1 seconds that are not long
SELECT name, extract(epoch FROM windlass.now() - next_at)::float8 AS late
  FROM windlass.schedules
 WHERE NOT paused AND next_at < windlass.now() - make_interval(secs => $1::float8)
 ORDER BY next_at, name

-- name: doctor_forgotten
-- List live workers that report fewer jobs than name them.
--
--   $1 seconds that the answer to a claim may take
--
-- Only jobs that were claimed well before the worker last reported its number count: it held all of them then, whatever
-- has ended since.
SELECT workers.name, workers.held, count(*)::int
  FROM windlass.workers
  JOIN windlass.jobs ON jobs.worker = workers.id AND jobs.status = 'running'
 WHERE NOT workers.dead AND workers.alive_until > windlass.now()
   AND jobs.claimed_at < workers.held_at - make_interval(secs => $1::float8)
 GROUP BY workers.id
HAVING count(*) > workers.held
 ORDER BY workers.name

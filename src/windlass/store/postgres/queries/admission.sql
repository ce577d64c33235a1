-- Admission: gates, budgets, tenants.

-- fragment: closed
-- What keeps jobs from starting now: gates that are not open, and spent budgets.
SELECT kind, name, state FROM windlass.gates WHERE state <> 'open'
    UNION ALL
    SELECT kind, name, 'spent' FROM windlass.budgets WHERE {budget_spent}

-- fragment: budget_spent
-- A budget that allows no further cost in the current window.
(cents = 0 OR (spent >= cents AND until > windlass.now()))

-- name: gates
-- List every gate that was ever set, closed gates first.
SELECT kind, name, state, reason, actor, extract(epoch FROM since)::float8
  FROM windlass.gates
 ORDER BY state = 'open', kind, name

-- name: set_gate
-- Open or close a gate. A gate that is in this state already keeps its time.
--
--   $1 [{kind, name, state, reason, actor}]
INSERT INTO windlass.gates (kind, name, state, reason, actor)
SELECT kind, name, state, reason, actor
  FROM json_to_recordset(CAST($1 AS json)) AS new (kind text, name text, state text, reason text, actor text)
    ON CONFLICT (kind, name) DO UPDATE
   SET since = CASE WHEN gates.state = excluded.state THEN gates.since ELSE windlass.now() END,
       state = excluded.state, reason = excluded.reason, actor = excluded.actor

-- name: closures
-- List everything that keeps jobs from starting now: gates, budgets, and buckets that are held back.
{closed}
UNION ALL
SELECT 'bucket', key, 'held' FROM windlass.limit_counters
 WHERE held_until > windlass.now()

-- name: budgets
-- List the budgets, each with the cost of its current window.
SELECT kind, name, cents, seconds, CASE WHEN until > windlass.now() THEN spent ELSE 0 END,
       extract(epoch FROM CASE WHEN until > windlass.now() THEN until ELSE windlass.window_end(seconds) END)::float8
  FROM windlass.budgets
 ORDER BY kind, name

-- name: set_budget
-- Set a budget, new or changed. The cost that its window already has counts: it is read from the ledger.
--
--   $1 [{kind, name, cents, seconds}]
INSERT INTO windlass.budgets (kind, name, cents, seconds, until, spent)
SELECT kind, name, cents, seconds, windlass.window_end(seconds),
       coalesce((SELECT sum(ledger.cents) FROM windlass.ledger
                  WHERE CASE new.kind WHEN 'tenant' THEN ledger.tenant ELSE ledger.queue END = new.name
                    AND ledger.at >= CASE WHEN new.seconds IS NULL
                        THEN (windlass.window_end(NULL) AT TIME ZONE 'UTC' - interval '1 month') AT TIME ZONE 'UTC'
                        ELSE windlass.window_end(seconds) - make_interval(secs => seconds) END), 0)
  FROM json_to_recordset(CAST($1 AS json)) AS new (kind text, name text, cents bigint, seconds float8)
    ON CONFLICT (kind, name) DO UPDATE
   SET cents = excluded.cents, seconds = excluded.seconds, until = excluded.until, spent = excluded.spent

-- name: drop_budget
-- Delete a budget.
--
--   $1 [{kind, name}]
DELETE FROM windlass.budgets
 USING json_to_recordset(CAST($1 AS json)) AS dropped (kind text, name text)
 WHERE budgets.kind = dropped.kind AND budgets.name = dropped.name
RETURNING budgets.name

-- name: charge
-- Record what running attempts cost in all, each under its lease. The new part of the cost goes into the job, the
-- ledger, and the budgets of the job's tenant and queue. A budget begins its next window first if its window is over.
--
--   $1 [{job, token, cents}], sorted
WITH cost AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS cost (job uuid, token uuid, cents bigint)
), held AS MATERIALIZED (
    SELECT jobs.id, jobs.fence, jobs.tenant, jobs.queue, jobs.type, cost.cents, cost.cents - jobs.cost_cents AS more
      FROM cost
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[cost.job]) AND jobs.token = cost.token
     WHERE cost.cents > jobs.cost_cents
     ORDER BY cost.job
       FOR UPDATE OF jobs
), jobs_written AS (
    UPDATE windlass.jobs SET cost_cents = held.cents FROM held WHERE jobs.id = ANY (ARRAY[held.id])
), ledger_written AS (
    INSERT INTO windlass.ledger (job, fence, tenant, queue, type, cents)
    SELECT id, fence, tenant, queue, type, more FROM held
), charged AS MATERIALIZED (
    SELECT budgets.kind, budgets.name, sum(held.more)::bigint AS more
      FROM windlass.budgets
      JOIN held ON CASE budgets.kind WHEN 'tenant' THEN held.tenant ELSE held.queue END = budgets.name
     GROUP BY budgets.kind, budgets.name
), locked AS MATERIALIZED (
    SELECT budgets.kind, budgets.name, charged.more
      FROM charged
      JOIN windlass.budgets USING (kind, name)
     ORDER BY budgets.kind, budgets.name
       FOR UPDATE OF budgets
)
UPDATE windlass.budgets
   SET spent = locked.more + CASE WHEN budgets.until > windlass.now() THEN budgets.spent ELSE 0 END,
       until = CASE WHEN budgets.until > windlass.now() THEN budgets.until ELSE windlass.window_end(budgets.seconds) END
  FROM locked
 WHERE budgets.kind = locked.kind AND budgets.name = locked.name
RETURNING budgets.kind, budgets.name

-- name: set_weight
-- Set a tenant's weight. Returns a row if the weight changed.
--
--   $1 [{name, weight}]
INSERT INTO windlass.tenants (name, weight)
SELECT name, weight FROM json_to_recordset(CAST($1 AS json)) AS new (name text, weight float8)
    ON CONFLICT (name) DO UPDATE SET weight = excluded.weight WHERE tenants.weight <> excluded.weight
RETURNING name

-- name: prune_admission
-- Delete what admission no longer needs, a page of each kind: counter rows that no claim touched for an hour, and
-- ledger rows and ticks that are too old. Returns the size of the fullest page.
--
--   $1 age in seconds   $2 page
--
-- A claim may take a slot of a counter that was just found idle: the conditions are checked again under the row's lock.
WITH idle AS (
    DELETE FROM windlass.limit_counters
     WHERE key = ANY (ARRAY (
            SELECT limit_counters.key
              FROM windlass.limit_counters
             WHERE touched_at < windlass.now() - interval '1 hour' AND used = 0 AND next_at < windlass.now()
               AND coalesce(held_until, windlass.now()) <= windlass.now()
               AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.parked_on = limit_counters.key OFFSET 0)
             LIMIT $2::int
               FOR UPDATE SKIP LOCKED))
       AND used = 0 AND touched_at < windlass.now() - interval '1 hour'
 RETURNING 1
), old_costs AS (
    -- Ledger rows stay for at least two months: a budget that is set counts what its window has cost already.
    DELETE FROM windlass.ledger
     WHERE ctid = ANY (ARRAY (
            SELECT ledger.ctid
              FROM windlass.ledger
             WHERE ledger.at < windlass.now() - make_interval(secs => greatest($1::float8, 5356800))
               AND NOT EXISTS (SELECT FROM windlass.jobs WHERE jobs.id = ledger.job OFFSET 0)
               AND NOT EXISTS (SELECT FROM windlass.history WHERE history.id = ledger.job OFFSET 0)
             LIMIT $2::int))
 RETURNING 1
), old_ticks AS (
    DELETE FROM windlass.ticks
     WHERE ctid = ANY (ARRAY (
            SELECT ticks.ctid
              FROM windlass.ticks
             WHERE ticks.noted_at < windlass.now() - make_interval(secs => $1::float8)
             LIMIT $2::int))
 RETURNING 1
)
SELECT greatest((SELECT count(*) FROM idle), (SELECT count(*) FROM old_costs), (SELECT count(*) FROM old_ticks))

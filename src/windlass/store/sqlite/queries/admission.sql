-- Admission: gates, budgets, tenants.

-- fragment: spent_budget
-- A budget with no cents left in its current window. After the end of its window nothing is spent.   :now
iif(until > :now, spent, 0) >= cents

-- fragment: closed
-- Everything that keeps jobs from starting: closed gates, and spent budgets.   :now
-- CAST, because a column without a type keeps SQLite from searching both tables by kind and name: it would read every
-- budget in each claim (1.9 ms instead of 0.25 ms for `lanes` with 10,000 budgets).
SELECT kind, name, state FROM windlass_gates WHERE state <> 'open'
    UNION ALL
    SELECT kind, name, CAST('spent' AS TEXT) FROM windlass_budgets WHERE {spent_budget}

-- name: gates
-- Every gate that an operator ever set, closed ones first.
SELECT kind, name, state, reason, actor, since / 1000000.0
  FROM windlass_gates
 ORDER BY state = 'open', kind, name

-- name: set_gate
-- Open or close a gate; a gate that is in that state already keeps its time.
--   ?1 [{kind, name, state, reason, actor}]   ?2 now
INSERT INTO windlass_gates (kind, name, state, reason, actor, since)
SELECT value ->> 'kind', value ->> 'name', value ->> 'state', value ->> 'reason', value ->> 'actor', ?2
  FROM json_each(?1)
 WHERE true
    ON CONFLICT (kind, name) DO UPDATE
   SET since = iif(windlass_gates.state = excluded.state, windlass_gates.since, excluded.since),
       state = excluded.state, reason = excluded.reason, actor = excluded.actor

-- name: closures
-- Everything that keeps jobs from starting now: closed gates, spent budgets, keys that are held back.
--   :now
{closed}
UNION ALL
SELECT 'bucket', key, 'held' FROM windlass_limit_counters WHERE held_until > :now

-- name: budgets
-- Budgets, with what their current window has cost.
--   ?2 now
SELECT kind, name, cents, seconds, iif(until > ?2, spent, 0),
       iif(until > ?2, until, window_end(seconds, ?2)) / 1000000.0
  FROM windlass_budgets
 ORDER BY kind, name

-- name: set_budget
-- Write a budget, new or changed. What its window has cost already counts: it is read from the ledger.
--   ?1 [{kind, name, cents, seconds}]   ?2 now
INSERT INTO windlass_budgets (kind, name, cents, seconds, until, spent)
SELECT new.kind, new.name, new.cents, new.seconds, window_end(new.seconds, ?2),
       coalesce((SELECT sum(ledger.cents)
                   FROM windlass_ledger AS ledger
                  WHERE ledger.at >= window_begin(new.seconds, ?2)
                    AND iif(new.kind = 'tenant', ledger.tenant, ledger.queue) = new.name), 0)
  FROM (SELECT value ->> 'kind' AS kind, value ->> 'name' AS name, value ->> 'cents' AS cents,
               value ->> 'seconds' AS seconds
          FROM json_each(?1)) AS new
 WHERE true
    ON CONFLICT (kind, name) DO UPDATE
   SET cents = excluded.cents, seconds = excluded.seconds, until = excluded.until, spent = excluded.spent

-- name: drop_budget
-- Delete a budget.
--   ?1 [{kind, name}]
DELETE FROM windlass_budgets
 WHERE (kind, name) IN (SELECT value ->> 'kind', value ->> 'name' FROM json_each(?1))
RETURNING name

-- name: charge
-- Write what running attempts have cost so far, each under its lease. The difference to the cost known before goes into
-- the ledger and into the budgets of its tenant and its queue; a budget begins a new window first where its own is
-- over. The job's own row is last: the other statements compare with it.
--   ?1 [{job, token, cents}]   ?2 now
INSERT INTO windlass_ledger (job, fence, at, tenant, queue, type, cents)
SELECT jobs.id, jobs.fence, ?2, jobs.tenant, jobs.queue, jobs.type, max(cost.value ->> 'cents') - jobs.cost_cents
  FROM json_each(?1) AS cost
  JOIN windlass_jobs AS jobs ON jobs.id = cost.value ->> 'job' AND jobs.token = cost.value ->> 'token'
 GROUP BY jobs.id
HAVING max(cost.value ->> 'cents') > jobs.cost_cents
-- then
UPDATE windlass_budgets
   SET spent = due.more + iif(until > ?2, spent, 0), until = iif(until > ?2, until, window_end(seconds, ?2))
  FROM (SELECT budgets.kind, budgets.name, sum(held.more) AS more
          FROM windlass_budgets AS budgets
          JOIN (SELECT jobs.tenant, jobs.queue, max(cost.value ->> 'cents') - jobs.cost_cents AS more
                  FROM json_each(?1) AS cost
                  JOIN windlass_jobs AS jobs ON jobs.id = cost.value ->> 'job' AND jobs.token = cost.value ->> 'token'
                 GROUP BY jobs.id
                HAVING max(cost.value ->> 'cents') > jobs.cost_cents) AS held
            ON iif(budgets.kind = 'tenant', held.tenant, held.queue) = budgets.name
         GROUP BY budgets.kind, budgets.name) AS due
 WHERE windlass_budgets.kind = due.kind AND windlass_budgets.name = due.name
-- then
UPDATE windlass_jobs SET cost_cents = cost.cents
  FROM (SELECT value ->> 'job' AS job, value ->> 'token' AS token, max(value ->> 'cents') AS cents
          FROM json_each(?1)
         GROUP BY 1, 2) AS cost
 WHERE windlass_jobs.id = cost.job AND windlass_jobs.token = cost.token AND cost.cents > windlass_jobs.cost_cents

-- name: set_weight
-- Set a tenant's weight; returns a row where it changed.
--   ?1 [{name, weight}]
INSERT INTO windlass_tenants (name, weight)
SELECT value ->> 'name', value ->> 'weight' FROM json_each(?1)
 WHERE true
    ON CONFLICT (name) DO UPDATE SET weight = excluded.weight WHERE weight <> excluded.weight
RETURNING name

-- name: prune_admission
-- Delete old rows of admission, a page of each kind: limit counters that no job used for an hour, ledger rows and ticks
-- that are older than the history.
--   ?1 history in microseconds   ?2 now   ?3 page
DELETE FROM windlass_limit_counters
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_limit_counters AS old
         WHERE old.touched_at < ?2 - 3600 * 1000000 AND old.used = 0 AND old.next_at < ?2
           AND coalesce(old.held_until, 0) <= ?2
           AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.parked_on = old.key)
         LIMIT ?3)
-- then
-- Kept for at least two months: a new budget counts what its window has cost already.
DELETE FROM windlass_ledger
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_ledger AS old
         WHERE old.at < ?2 - max(?1, 62 * 24 * 3600 * 1000000)
           AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.id = old.job)
           AND NOT EXISTS (SELECT 1 FROM windlass_history AS history WHERE history.id = old.job)
         LIMIT ?3)
-- then
DELETE FROM windlass_ticks
 WHERE rowid IN (SELECT old.rowid FROM windlass_ticks AS old WHERE old.noted_at < ?2 - ?1 LIMIT ?3)

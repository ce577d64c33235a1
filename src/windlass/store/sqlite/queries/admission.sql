-- Admission: gates, budgets, tenants.

-- name: gates
-- Every gate that somebody touched, closed ones first.   ?2 now
SELECT kind, name, state, reason, actor, since / 1000000.0
  FROM windlass_gates
 ORDER BY state = 'open', kind, name

-- name: set_gate
-- Open or close a gate; one that is so already keeps its time.   ?1 [{kind, name, state, reason, actor}]   ?2 now
INSERT INTO windlass_gates (kind, name, state, reason, actor, since)
SELECT value ->> 'kind', value ->> 'name', value ->> 'state', value ->> 'reason', value ->> 'actor', ?2
  FROM json_each(?1)
 WHERE true
    ON CONFLICT (kind, name) DO UPDATE
   SET since = iif(windlass_gates.state = excluded.state, windlass_gates.since, excluded.since),
       state = excluded.state, reason = excluded.reason, actor = excluded.actor

-- name: closures
-- Everything that keeps jobs from starting now.   ?2 now
SELECT kind, name, state FROM windlass_gates WHERE state <> 'open'
UNION ALL
SELECT kind, name, 'spent' FROM windlass_budgets WHERE iif(until > ?2, spent, 0) >= cents
UNION ALL
SELECT 'bucket', key, 'held' FROM windlass_limit_counters WHERE held_until > ?2

-- name: budgets
-- Budgets with what the window that is now has cost.   ?2 now
SELECT kind, name, cents, seconds, iif(until > ?2, spent, 0), iif(until > ?2, until, window_end(seconds, ?2)) / 1000000.0
  FROM windlass_budgets
 ORDER BY kind, name

-- name: set_budget
-- A budget, new or changed. What its window has cost already counts: the ledger knows.   ?1 [{kind, name, cents, seconds}]
--   ?2 now
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
-- Forget a budget.   ?1 [{kind, name}]   ?2 now
DELETE FROM windlass_budgets
 WHERE (kind, name) IN (SELECT value ->> 'kind', value ->> 'name' FROM json_each(?1))
RETURNING name

-- name: charge
-- What running attempts cost in all, each under its lease: what is new goes into the ledger, the budgets of its tenant
-- and its queue, whose window moves on first where it is over, and the job itself, last: the others compare with it.
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

-- name: tenants
-- Tenants that have a weight or jobs, or cost something in the last 24 hours.   ?2 now
WITH counted AS MATERIALIZED (
    SELECT tenant,
           sum(status IN ('queued', 'failed')) AS queued,
           sum(status = 'running') AS running,
           sum(parked_on IS NOT NULL) AS parked,
           (?2 - min(run_at) FILTER (WHERE status IN ('queued', 'failed') AND run_at <= ?2)) / 1000000.0 AS lag
      FROM windlass_jobs
     GROUP BY tenant
), cost AS MATERIALIZED (
    SELECT tenant, sum(cents) AS cents FROM windlass_ledger WHERE at > ?2 - 24 * 3600 * 1000000 GROUP BY tenant
)
SELECT names.name, coalesce(tenants.weight, 1.0), coalesce(counted.queued, 0), coalesce(counted.running, 0),
       coalesce(counted.parked, 0), counted.lag, coalesce(cost.cents, 0)
  FROM (SELECT name FROM windlass_tenants UNION SELECT tenant FROM counted UNION SELECT tenant FROM cost) AS names
  LEFT JOIN windlass_tenants AS tenants ON tenants.name = names.name
  LEFT JOIN counted ON counted.tenant = names.name
  LEFT JOIN cost ON cost.tenant = names.name
 ORDER BY names.name

-- name: set_weight
-- A tenant's weight; a row where it is another one than before.   ?1 [{name, weight}]   ?2 now
INSERT INTO windlass_tenants (name, weight)
SELECT value ->> 'name', value ->> 'weight' FROM json_each(?1)
 WHERE true
    ON CONFLICT (name) DO UPDATE SET weight = excluded.weight WHERE weight <> excluded.weight
RETURNING name

-- name: prune_admission
-- What admission left behind, a page of each: limit_counters nobody came through for an hour, ledger rows and ticks whose
-- time has passed.   ?1 the history in microseconds   ?2 now   ?3 page
DELETE FROM windlass_limit_counters
 WHERE rowid IN (
        SELECT old.rowid
          FROM windlass_limit_counters AS old
         WHERE old.touched_at < ?2 - 3600 * 1000000 AND old.used = 0 AND old.next_at < ?2
           AND coalesce(old.held_until, 0) <= ?2
           AND NOT EXISTS (SELECT 1 FROM windlass_jobs AS jobs WHERE jobs.parked_on = old.key)
         LIMIT ?3)
-- then
-- At least for two months: a budget that is set counts what its window has cost already.
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

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

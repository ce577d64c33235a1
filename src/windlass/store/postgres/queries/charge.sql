-- What running attempts cost in all, each under its lease: what is new goes into the job, the ledger, and the budgets of
-- its tenant and its queue, whose window moves on first where it is over.   $1 [{job, token, cents}], sorted
WITH cost AS MATERIALIZED (
    SELECT * FROM json_to_recordset(CAST($1 AS json)) AS cost (job uuid, token uuid, cents bigint)
), held AS MATERIALIZED (
    SELECT jobs.id, jobs.fence, jobs.tenant, jobs.queue, jobs.type, cost.cents, cost.cents - jobs.cost_cents AS more
      FROM cost
      JOIN windlass.jobs ON jobs.id = ANY (ARRAY[cost.job]) AND jobs.token = cost.token
     WHERE cost.cents > jobs.cost_cents
     ORDER BY cost.job
       FOR UPDATE OF jobs
), written AS (
    UPDATE windlass.jobs SET cost_cents = held.cents FROM held WHERE jobs.id = ANY (ARRAY[held.id])
), entered AS (
    INSERT INTO windlass.ledger (job, fence, tenant, queue, type, cents)
    SELECT id, fence, tenant, queue, type, more FROM held
), due AS MATERIALIZED (
    SELECT budgets.kind, budgets.name, sum(held.more)::bigint AS more
      FROM windlass.budgets
      JOIN held ON CASE budgets.kind WHEN 'tenant' THEN held.tenant ELSE held.queue END = budgets.name
     GROUP BY budgets.kind, budgets.name
), locked AS MATERIALIZED (
    SELECT budgets.kind, budgets.name, due.more
      FROM due
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

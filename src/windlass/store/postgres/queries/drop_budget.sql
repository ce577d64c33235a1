-- Forget a budget.   $1 [{kind, name}]
DELETE FROM windlass.budgets
 USING json_to_recordset(CAST($1 AS json)) AS gone (kind text, name text)
 WHERE budgets.kind = gone.kind AND budgets.name = gone.name
RETURNING budgets.name

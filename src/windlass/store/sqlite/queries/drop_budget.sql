-- Forget a budget.   ?1 [{kind, name}]   ?2 now
DELETE FROM windlass_budgets
 WHERE (kind, name) IN (SELECT value ->> 'kind', value ->> 'name' FROM json_each(?1))
RETURNING name

-- Everything that keeps jobs from starting now.   $1 []
SELECT kind, name, state FROM windlass.gates WHERE state <> 'open' AND CAST($1 AS json) IS NOT NULL
UNION ALL
SELECT kind, name, 'spent' FROM windlass.budgets WHERE cents = 0 OR (spent >= cents AND until > windlass.now())
UNION ALL
SELECT 'bucket', key, 'held' FROM windlass.turnstiles WHERE held_until > windlass.now()

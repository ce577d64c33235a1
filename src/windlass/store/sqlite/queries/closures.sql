-- Everything that keeps jobs from starting now.   ?1 []   ?2 now
SELECT kind, name, state FROM windlass_gates WHERE state <> 'open'
UNION ALL
SELECT kind, name, 'spent' FROM windlass_budgets WHERE iif(until > ?2, spent, 0) >= cents
UNION ALL
SELECT 'bucket', key, 'held' FROM windlass_turnstiles WHERE held_until > ?2

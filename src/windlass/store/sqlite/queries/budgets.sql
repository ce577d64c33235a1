-- Budgets with what the window that is now has cost.   ?1 []   ?2 now
SELECT kind, name, cents, seconds, iif(until > ?2, spent, 0), iif(until > ?2, until, window_end(seconds, ?2)) / 1000000.0
  FROM windlass_budgets
 ORDER BY kind, name

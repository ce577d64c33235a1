-- Budgets that are spent in the window that is now.   :now
SELECT kind, name, cents, iif(until > :now, spent, 0) AS spent,
       (iif(until > :now, until, window_end(seconds, :now)) - :now) / 1000000.0 AS opens
  FROM windlass_budgets
 WHERE iif(until > :now, spent, 0) >= cents
 ORDER BY kind, name

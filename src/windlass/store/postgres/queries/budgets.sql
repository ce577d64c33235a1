-- Budgets with what the window that is now has cost.   $1 []
SELECT kind, name, cents, seconds, CASE WHEN until > windlass.now() THEN spent ELSE 0 END,
       extract(epoch FROM CASE WHEN until > windlass.now() THEN until ELSE windlass.window_end(seconds) END)::float8
  FROM windlass.budgets
 WHERE CAST($1 AS json) IS NOT NULL
 ORDER BY kind, name

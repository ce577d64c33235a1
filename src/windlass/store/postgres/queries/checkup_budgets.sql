-- Budgets that are spent in the window that is now.
SELECT kind, name, cents, CASE WHEN until > windlass.now() THEN spent ELSE 0 END AS spent,
       extract(epoch FROM CASE WHEN until > windlass.now() THEN until ELSE windlass.window_end(seconds) END
           - windlass.now())::float8 AS opens
  FROM windlass.budgets
 WHERE CASE WHEN until > windlass.now() THEN spent ELSE 0 END >= cents
 ORDER BY kind, name

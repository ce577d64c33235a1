-- A budget, new or changed. What its window has cost already counts: the ledger knows.   $1 [{kind, name, cents, seconds}]
INSERT INTO windlass.budgets (kind, name, cents, seconds, until, spent)
SELECT kind, name, cents, seconds, windlass.window_end(seconds),
       coalesce((SELECT sum(ledger.cents) FROM windlass.ledger
                  WHERE CASE new.kind WHEN 'tenant' THEN ledger.tenant ELSE ledger.queue END = new.name
                    AND ledger.at >= CASE WHEN new.seconds IS NULL
                        THEN (windlass.window_end(NULL) AT TIME ZONE 'UTC' - interval '1 month') AT TIME ZONE 'UTC'
                        ELSE windlass.window_end(seconds) - make_interval(secs => seconds) END), 0)
  FROM json_to_recordset(CAST($1 AS json)) AS new (kind text, name text, cents bigint, seconds float8)
    ON CONFLICT (kind, name) DO UPDATE
   SET cents = excluded.cents, seconds = excluded.seconds, until = excluded.until, spent = excluded.spent

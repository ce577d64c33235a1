-- A budget, new or changed. What its window has cost already counts: the ledger knows.   ?1 [{kind, name, cents, seconds}]
--   ?2 now
INSERT INTO windlass_budgets (kind, name, cents, seconds, until, spent)
SELECT new.kind, new.name, new.cents, new.seconds, window_end(new.seconds, ?2),
       coalesce((SELECT sum(ledger.cents)
                   FROM windlass_ledger AS ledger
                  WHERE ledger.at >= window_begin(new.seconds, ?2)
                    AND iif(new.kind = 'tenant', ledger.tenant, ledger.queue) = new.name), 0)
  FROM (SELECT value ->> 'kind' AS kind, value ->> 'name' AS name, value ->> 'cents' AS cents,
               value ->> 'seconds' AS seconds
          FROM json_each(?1)) AS new
 WHERE true
    ON CONFLICT (kind, name) DO UPDATE
   SET cents = excluded.cents, seconds = excluded.seconds, until = excluded.until, spent = excluded.spent

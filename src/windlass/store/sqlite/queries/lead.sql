-- Take or keep a leadership: mine already, or nobody's any more. The term grows with every change of hands.
INSERT INTO windlass_leaders (name, holder, until)
VALUES (:name, :worker, :now + :lease)
ON CONFLICT (name) DO UPDATE
   SET until = excluded.until, term = term + (holder <> excluded.holder), holder = excluded.holder
 WHERE holder = excluded.holder OR until < :now

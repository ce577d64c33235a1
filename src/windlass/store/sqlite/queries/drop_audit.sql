-- One page of what is older.   :audit   :page   :now
DELETE FROM windlass_audit WHERE number IN (SELECT number FROM windlass_audit WHERE at < :now - :audit LIMIT :page)

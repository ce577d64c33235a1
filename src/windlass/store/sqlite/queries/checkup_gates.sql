-- Gates that are closed, the longest first.   :now
SELECT kind, name, state, reason, actor, max(0, :now - since) / 1000000.0 AS age
  FROM windlass_gates
 WHERE state <> 'open'
 ORDER BY since, kind, name

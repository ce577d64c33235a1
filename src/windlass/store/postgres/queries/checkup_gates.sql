-- Gates that are closed, the longest first.
SELECT kind, name, state, reason, actor, greatest(0, extract(epoch FROM windlass.now() - since))::float8 AS age
  FROM windlass.gates
 WHERE state <> 'open'
 ORDER BY since, kind, name

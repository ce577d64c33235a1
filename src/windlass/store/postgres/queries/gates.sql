-- Every gate that somebody touched, closed ones first.   $1 []
SELECT kind, name, state, reason, actor, extract(epoch FROM since)::float8
  FROM windlass.gates
 WHERE CAST($1 AS json) IS NOT NULL
 ORDER BY state = 'open', kind, name

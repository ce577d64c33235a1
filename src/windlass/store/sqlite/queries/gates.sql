-- Every gate that somebody touched, closed ones first.   ?1 []   ?2 now
SELECT kind, name, state, reason, actor, since / 1000000.0
  FROM windlass_gates
 ORDER BY state = 'open', kind, name

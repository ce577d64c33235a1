-- Open or close a gate; one that is so already keeps its time.   ?1 [{kind, name, state, reason, actor}]   ?2 now
INSERT INTO windlass_gates (kind, name, state, reason, actor, since)
SELECT value ->> 'kind', value ->> 'name', value ->> 'state', value ->> 'reason', value ->> 'actor', ?2
  FROM json_each(?1)
 WHERE true
    ON CONFLICT (kind, name) DO UPDATE
   SET since = iif(windlass_gates.state = excluded.state, windlass_gates.since, excluded.since),
       state = excluded.state, reason = excluded.reason, actor = excluded.actor

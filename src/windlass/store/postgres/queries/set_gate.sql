-- Open or close a gate; one that is so already keeps its time.   $1 [{kind, name, state, reason, actor}]
INSERT INTO windlass.gates (kind, name, state, reason, actor)
SELECT kind, name, state, reason, actor
  FROM json_to_recordset(CAST($1 AS json)) AS new (kind text, name text, state text, reason text, actor text)
    ON CONFLICT (kind, name) DO UPDATE
   SET since = CASE WHEN gates.state = excluded.state THEN gates.since ELSE windlass.now() END,
       state = excluded.state, reason = excluded.reason, actor = excluded.actor

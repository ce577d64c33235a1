-- What an operator did to something that is no job.   $1 [{action, actor, subject, reason}]
INSERT INTO windlass.audit (action, actor, subject, reason)
SELECT action, actor, subject, reason
  FROM json_to_recordset(CAST($1 AS json)) AS new (action text, actor text, subject text, reason text)

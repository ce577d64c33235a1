-- What an operator did to something that is no job.   ?1 [{action, actor, subject, reason}]   ?2 now
INSERT INTO windlass_audit (at, action, actor, subject, reason)
SELECT ?2, value ->> 'action', value ->> 'actor', value ->> 'subject', value ->> 'reason' FROM json_each(?1)

-- What a job's earlier runs left behind.   $1 id
SELECT 'step' AS kind, name, value::text FROM windlass.steps WHERE job = $1
UNION ALL
SELECT 'signal', name, payload::text FROM windlass.signals WHERE job = $1

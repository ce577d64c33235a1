-- What a job's earlier runs left behind.   :id
SELECT 'step', name, value FROM windlass_steps WHERE job = :id
UNION ALL
SELECT 'signal', name, payload FROM windlass_signals WHERE job = :id

-- Goodbye, unless a job still names this worker: its row is what the sweeper finds that job by.
DELETE FROM windlass_workers
 WHERE id = :id AND NOT EXISTS (SELECT 1 FROM windlass_jobs WHERE worker = :id AND status = 'running')

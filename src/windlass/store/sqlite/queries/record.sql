-- Progress, under the lease.
UPDATE windlass_jobs
   SET total = :total, processed = :processed, failed = :failed, updated_at = :now
 WHERE id = :id AND token = :token AND status = 'running'

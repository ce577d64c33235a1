-- The group of a job's last error: written with the error, null until an attempt failed, kept when a later one succeeds.
ALTER TABLE windlass_jobs ADD COLUMN fingerprint TEXT;
ALTER TABLE windlass_jobs ADD COLUMN error_at INTEGER;          -- when the attempt failed
ALTER TABLE windlass_jobs ADD COLUMN error_worker TEXT;         -- the worker that ran it
ALTER TABLE windlass_history ADD COLUMN fingerprint TEXT;
ALTER TABLE windlass_history ADD COLUMN error_at INTEGER;
ALTER TABLE windlass_history ADD COLUMN error_worker TEXT;

-- The newest failures, for the list of error groups: queue and tenant are in the index, so that the failures of others
-- are passed over without a look at their rows. And the jobs of one group, for a filter.
-- They are partial: a job without a failure is in none of them, from its enqueue to its success.
CREATE INDEX windlass_jobs_errors ON windlass_jobs (error_at, queue, tenant) WHERE fingerprint IS NOT NULL;
CREATE INDEX windlass_jobs_fingerprint ON windlass_jobs (fingerprint, id) WHERE fingerprint IS NOT NULL;
CREATE INDEX windlass_history_errors ON windlass_history (error_at, queue, tenant) WHERE fingerprint IS NOT NULL;
CREATE INDEX windlass_history_fingerprint ON windlass_history (fingerprint, id) WHERE fingerprint IS NOT NULL;

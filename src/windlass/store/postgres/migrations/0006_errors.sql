-- The group of a job's last error: written with the error, null until an attempt failed, kept when a later one succeeds.
ALTER TABLE windlass.jobs
    ADD COLUMN fingerprint  text,
    ADD COLUMN error_at     timestamptz,                       -- when the attempt failed
    ADD COLUMN error_worker uuid;                              -- the worker that ran it
ALTER TABLE windlass.history
    ADD COLUMN fingerprint text, ADD COLUMN error_at timestamptz, ADD COLUMN error_worker uuid;

-- The newest failures, for the list of error groups: queue and tenant are in the index, so that the failures of others
-- are passed over without a look at their rows. And the jobs of one group, for a filter.
-- They are partial: a job without a failure is in none of them, from its enqueue to its success.
-- No column of them changes with the progress of a job, so that such a write stays on its page (HOT).
CREATE INDEX jobs_errors ON windlass.jobs (error_at, queue, tenant) WHERE fingerprint IS NOT NULL;
CREATE INDEX jobs_fingerprint ON windlass.jobs (fingerprint, id) WHERE fingerprint IS NOT NULL;
CREATE INDEX history_errors ON windlass.history (error_at, queue, tenant) WHERE fingerprint IS NOT NULL;
CREATE INDEX history_fingerprint ON windlass.history (fingerprint, id) WHERE fingerprint IS NOT NULL;

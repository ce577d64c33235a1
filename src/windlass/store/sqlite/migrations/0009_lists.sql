-- Indexes for lists of jobs, newest first. Their conditions are ones that no other statement has.

-- Jobs that are set aside, by state: the only dead jobs among a million may be the oldest ones.
CREATE INDEX windlass_jobs_aside_newest ON windlass_jobs (status, id)
    WHERE coalesce(status, '') IN ('failed', 'waiting', 'dead');

-- The jobs of one tenant that have ended. A row of the default tenant, as most programs write, is not in it. Jobs that go
-- on have no such index: each claim would write an entry, and touch more pages than it may.
CREATE INDEX windlass_history_tenant ON windlass_history (tenant, id) WHERE coalesce(tenant, '') <> 'default';

-- Pages of the audit by action. Most rows are successes, and these are not in it.
CREATE INDEX windlass_audit_action ON windlass_audit (action, number) WHERE action <> 'JOB_SUCCEEDED';

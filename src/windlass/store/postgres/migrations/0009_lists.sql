-- New jobs, once per statement: a thousand jobs of a COPY cost one INSERT. In the mode `direct` an enqueue that publishes
-- its jobs itself marks them: they were due a microsecond before they were created. COPY writes no such mark, and a
-- setting of its transaction is the mark. All others have rows: jobs of schedules, handlers and follow-ups, those on a
-- caller's connection, and what is due later.
CREATE OR REPLACE FUNCTION windlass.deliver_new() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO windlass.outbox (job, deliver_at)
    SELECT new_jobs.id, new_jobs.run_at
      FROM new_jobs
     WHERE new_jobs.status IN ('queued', 'failed') AND new_jobs.parked_on IS NULL AND NOT new_jobs.cancel_requested
       AND (new_jobs.run_at <> new_jobs.created_at - interval '1 microsecond'
            AND current_setting('windlass.published', true) IS DISTINCT FROM 'on'
            OR (SELECT delivery FROM windlass.installation LIMIT 1) IS DISTINCT FROM 'direct');
    RETURN NULL;
END
$$;

-- Indexes for lists of jobs, newest first. Their conditions are ones that no other statement has, as that of jobs_aside:
-- no statement of the engine goes by them.

-- The jobs of one tenant that have ended. A row of the default tenant, as most programs write, is not in it. Jobs that go
-- on have no such index: each claim would write an entry, and touch more pages than it may.
CREATE INDEX history_tenant ON windlass.history (tenant, id) WHERE coalesce(tenant, '') <> 'default';

-- Pages of the audit by action. Most rows are successes, and these are not in it.
CREATE INDEX audit_action ON windlass.audit (action, number) WHERE action <> 'JOB_SUCCEEDED';

-- The last statement, because it keeps every enqueue and claim waiting until the commit: the large tables are done.
--
-- Jobs that are set aside, by state: the only dead jobs among a million may be the oldest ones. A job that is queued,
-- claimed and succeeds is not in it.
CREATE INDEX jobs_aside_newest ON windlass.jobs (status, id)
    WHERE coalesce(status, 'queued') IN ('failed', 'waiting', 'dead');

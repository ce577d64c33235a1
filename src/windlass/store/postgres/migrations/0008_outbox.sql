-- Delivery through a broker: the outbox, and the functions that write it. The triggers that call these functions are
-- made when a broker is set (`set_delivery`): a database without a broker pays nothing.

-- null: no broker carries jobs, and there are no triggers. outbox: every job that becomes claimable has a row in the
-- outbox. direct: as outbox, without new jobs that are due at once: the process that enqueues them publishes them.
ALTER TABLE windlass.installation ADD COLUMN delivery text CHECK (delivery IN ('outbox', 'direct'));

-- Jobs to publish to the broker. A row is written in the transaction that makes its job claimable, so that it commits
-- or rolls back with that. A relay leases rows, publishes them, and deletes those that the broker confirmed. No foreign
-- key: a job may end before its row is read, and the relay drops such a row. A job may have several rows: a delivery
-- too many is refused by the claim.
CREATE TABLE windlass.outbox (
    id           bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job          uuid        NOT NULL,
    deliver_at   timestamptz NOT NULL,
    kind         text        NOT NULL DEFAULT 'deliver' CHECK (kind IN ('deliver', 'dead')),
    -- What has to end before the row is due: null; `gate:<kind>:<name>`, a gate or a spent budget; or
    -- `worker:<type>\x1f<queue>`, no live worker takes the type from the queue. The name is part of it, so that a relay
    -- reads one entry per gate and per type, and not one per row.
    waits_for    text,
    leased_until timestamptz
) WITH (
    -- Every row is written, leased and deleted within moments: vacuum by count, not by share.
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1
);
CREATE INDEX outbox_due ON windlass.outbox (deliver_at, id) WHERE waits_for IS NULL;
CREATE INDEX outbox_waiting ON windlass.outbox (waits_for, deliver_at, id) WHERE waits_for IS NOT NULL;
-- Whether a job is in the outbox: a sweep does not write a second row for a job that no relay has published yet.
CREATE INDEX outbox_job ON windlass.outbox (job);

-- SECURITY DEFINER, so that a role that may only enqueue needs no right on the outbox; with a fixed search_path, so that
-- such a role cannot put a function of its own in the place of a built-in one.

-- New jobs, once per statement: a thousand jobs of a COPY cost one INSERT. In the mode `direct` only jobs that are due
-- later have rows. A resumed job is inserted with a new run_at and its old created_at, and so has one, too.
CREATE FUNCTION windlass.deliver_new() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO windlass.outbox (job, deliver_at)
    SELECT new_jobs.id, new_jobs.run_at
      FROM new_jobs
     WHERE new_jobs.status IN ('queued', 'failed') AND new_jobs.parked_on IS NULL AND NOT new_jobs.cancel_requested
       AND (new_jobs.run_at > new_jobs.created_at
            OR (SELECT delivery FROM windlass.installation LIMIT 1) IS DISTINCT FROM 'direct');
    RETURN NULL;
END
$$;

-- One job that became claimable, or dead. The trigger's condition is in the statement `make_outbox_triggers`: a claim and
-- a finish pay for that condition and do not call the function.
CREATE FUNCTION windlass.deliver_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO windlass.outbox (job, deliver_at, kind)
    VALUES (NEW.id, CASE WHEN NEW.status = 'dead' THEN windlass.now() ELSE NEW.run_at END,
            CASE WHEN NEW.status = 'dead' THEN 'dead' ELSE 'deliver' END);
    RETURN NULL;
END
$$;

-- Delivery through a broker: the outbox. Its triggers are made when a broker is set (`set_delivery`): a file without a
-- broker pays nothing.

-- null: no broker carries jobs, and there are no triggers. outbox: every job that becomes claimable has a row in the
-- outbox. direct: as outbox, without new jobs that are due at once: the process that enqueues them publishes them.
ALTER TABLE windlass_installation ADD COLUMN delivery TEXT CHECK (delivery IN ('outbox', 'direct'));

-- Jobs to publish to the broker. A row is written in the transaction that makes its job claimable, so that it commits
-- or rolls back with that. A relay leases rows, publishes them, and deletes those that the broker confirmed.
-- AUTOINCREMENT, so that no id is used twice: a relay that lost its lease would delete another job's row.
CREATE TABLE windlass_outbox (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    job          TEXT    NOT NULL,
    deliver_at   INTEGER NOT NULL,
    kind         TEXT    NOT NULL DEFAULT 'deliver' CHECK (kind IN ('deliver', 'dead')),
    -- What has to end before the row is due: null; `gate:<kind>:<name>`, a gate or a spent budget; or
    -- `worker:<type>\x1f<queue>`, no live worker takes the type from the queue.
    waits_for    TEXT,
    leased_until INTEGER
) STRICT;
CREATE INDEX windlass_outbox_due ON windlass_outbox (deliver_at, id) WHERE waits_for IS NULL;
CREATE INDEX windlass_outbox_waiting ON windlass_outbox (waits_for, deliver_at, id) WHERE waits_for IS NOT NULL;
CREATE INDEX windlass_outbox_job ON windlass_outbox (job);

-- Indexes for lists that count. The hot path touches none of them: a job that is queued, claimed and succeeds is in no
-- one of them.

-- Jobs that are set aside, by state, queue and tenant.
CREATE INDEX windlass_jobs_aside ON windlass_jobs (status, queue, tenant) WHERE status IN ('failed', 'waiting', 'dead');

-- Parked jobs by queue and tenant: a claim that parks a job writes an entry, and no other claim does.
-- Its condition is one that no other statement has: the statement that unparks must go by the index jobs_parked.
CREATE INDEX windlass_jobs_parked_in ON windlass_jobs (queue, tenant, run_at) WHERE coalesce(parked_on, '') <> '';

CREATE INDEX windlass_history_cancelled ON windlass_history (id) WHERE status = 'cancelled';

-- Figures: what ended in a span of ten seconds, in a queue and phase, with a row for each worker. Ends that no worker
-- wrote have a row with a new id as worker. The leader folds the rows of past spans into one with worker 0.
CREATE TABLE windlass_figures (
    at           INTEGER NOT NULL,                             -- the start of the span
    worker       TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    phase        TEXT    NOT NULL,
    succeeded    INTEGER NOT NULL DEFAULT 0,
    advanced     INTEGER NOT NULL DEFAULT 0,
    failed       INTEGER NOT NULL DEFAULT 0,
    dead         INTEGER NOT NULL DEFAULT 0,
    cancelled    INTEGER NOT NULL DEFAULT 0,
    run_seconds  REAL    NOT NULL DEFAULT 0,
    wait_seconds REAL    NOT NULL DEFAULT 0,
    runs         TEXT    NOT NULL,                             -- histograms: JSON arrays, in the buckets of BOUNDS
    waits        TEXT    NOT NULL,
    PRIMARY KEY (at, worker, queue, phase)
) STRICT, WITHOUT ROWID;

CREATE INDEX windlass_figures_unfolded ON windlass_figures (at)
    WHERE worker <> '00000000-0000-0000-0000-000000000000';

-- Samples of each queue's depth, written by the leader.
CREATE TABLE windlass_depths (
    at      INTEGER NOT NULL,
    queue   TEXT    NOT NULL,
    queued  INTEGER NOT NULL,
    running INTEGER NOT NULL,
    failed  INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    dead    INTEGER NOT NULL,
    lag     REAL,
    PRIMARY KEY (at, queue)
) STRICT, WITHOUT ROWID;

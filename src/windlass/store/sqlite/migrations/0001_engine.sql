-- The engine's tables. SQLite has no schemas, so that every name carries the prefix windlass_. Ids are TEXT, times are
-- INTEGER microseconds since the epoch in UTC, booleans are 0 and 1, JSON is TEXT. No column has "now" as its default:
-- time comes with each statement, from the store's clock.

-- One row that says which installation this is: an enqueue on the caller's connection is compared with it. `wakes` grows
-- with every commit that made a job claimable: a listener in another process sees by it that there is work, and not
-- only that somebody wrote.
CREATE TABLE windlass_installation (
    id         TEXT    NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL,
    wakes      INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO windlass_installation (id, created_at)
VALUES (lower(printf('%s-%s-4%s-%s%s-%s', hex(randomblob(4)), hex(randomblob(2)), substr(hex(randomblob(2)), 2),
                     substr('89ab', 1 + (random() & 3), 1), substr(hex(randomblob(2)), 2), hex(randomblob(6)))),
        CAST(strftime('%s', 'now') AS INTEGER) * 1000000);

-- Jobs that can still change: queued, failed, running, waiting, dead.
CREATE TABLE windlass_jobs (
    id               TEXT    NOT NULL PRIMARY KEY,
    token            TEXT,                                     -- the lease: equality
    worker           TEXT,
    parent           TEXT,
    copied_from      TEXT,
    fence            INTEGER NOT NULL DEFAULT 0,               -- the lease: order
    run_at           INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    claimed_at       INTEGER,
    started_at       INTEGER,
    finished_at      INTEGER,
    cost_cents       INTEGER NOT NULL DEFAULT 0,
    priority         INTEGER NOT NULL DEFAULT 0,
    attempt          INTEGER NOT NULL DEFAULT 0,
    max_attempts     INTEGER NOT NULL DEFAULT 4 CHECK (max_attempts > 0),
    crashes          INTEGER NOT NULL DEFAULT 0,
    rescues          INTEGER NOT NULL DEFAULT 0,
    phase_rank       INTEGER NOT NULL DEFAULT 0,
    total            INTEGER,
    processed        INTEGER NOT NULL DEFAULT 0,
    failed           INTEGER NOT NULL DEFAULT 0,
    cancel_requested INTEGER NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    status           TEXT    NOT NULL DEFAULT 'queued'
        CHECK (status IN ('queued', 'running', 'failed', 'waiting', 'dead')),
    tenant           TEXT    NOT NULL DEFAULT 'default',
    queue            TEXT    NOT NULL DEFAULT 'default',
    type             TEXT    NOT NULL,
    phase            TEXT    NOT NULL DEFAULT 'default',
    pipeline         TEXT,
    key              TEXT,
    trace            TEXT,
    reason           TEXT,
    input            TEXT    NOT NULL,
    output           TEXT,
    error            TEXT,
    attempts         TEXT,                                     -- attempts worth a word, oldest first
    CHECK ((status = 'running') = (token IS NOT NULL)),
    CHECK ((status = 'running') = (worker IS NOT NULL))
) STRICT;

-- The claim's order inside a queue. The queue leads, so that a worker of one queue never walks over another's jobs.
CREATE INDEX windlass_jobs_claim ON windlass_jobs (queue, phase_rank, priority DESC, run_at, id)
    WHERE status IN ('queued', 'failed');

-- Who holds what: the sweeper's way from a dead worker to its jobs.
CREATE INDEX windlass_jobs_running ON windlass_jobs (worker) WHERE status = 'running';

-- Requests to cancel are rare, and each worker looks for its own every poll.
CREATE INDEX windlass_jobs_cancel ON windlass_jobs (worker) WHERE cancel_requested;

-- Triggers and not the store, because an enqueue may come through the caller's own connection.
CREATE TRIGGER windlass_jobs_arrived AFTER INSERT ON windlass_jobs WHEN NEW.status = 'queued'
BEGIN
    UPDATE windlass_installation SET wakes = wakes + 1;
END;
CREATE TRIGGER windlass_jobs_returned AFTER UPDATE OF status ON windlass_jobs WHEN NEW.status = 'queued'
BEGIN
    UPDATE windlass_installation SET wakes = wakes + 1;
END;

-- Jobs that ended well or were cancelled. Rows get here in the transaction that finishes them and never change. An id
-- may come here twice (cancelled, resumed, finished) but is never here twice at a time: a resume takes it away.
CREATE TABLE windlass_history (
    id               TEXT    NOT NULL,
    token            TEXT,
    worker           TEXT,
    parent           TEXT,
    copied_from      TEXT,
    fence            INTEGER NOT NULL,
    run_at           INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    claimed_at       INTEGER,
    started_at       INTEGER,
    finished_at      INTEGER NOT NULL,
    cost_cents       INTEGER NOT NULL,
    priority         INTEGER NOT NULL,
    attempt          INTEGER NOT NULL,
    max_attempts     INTEGER NOT NULL,
    crashes          INTEGER NOT NULL,
    rescues          INTEGER NOT NULL,
    phase_rank       INTEGER NOT NULL,
    total            INTEGER,
    processed        INTEGER NOT NULL,
    failed           INTEGER NOT NULL,
    cancel_requested INTEGER NOT NULL,
    status           TEXT    NOT NULL CHECK (status IN ('succeeded', 'cancelled')),
    tenant           TEXT    NOT NULL,
    queue            TEXT    NOT NULL,
    type             TEXT    NOT NULL,
    phase            TEXT    NOT NULL,
    pipeline         TEXT,
    key              TEXT,
    trace            TEXT,
    reason           TEXT,
    input            TEXT    NOT NULL,
    output           TEXT,
    error            TEXT,
    attempts         TEXT
) STRICT;
CREATE INDEX windlass_history_id ON windlass_history (id);
CREATE INDEX windlass_history_finished ON windlass_history (finished_at);

-- A worker's incarnation. Its leases live while this row does.
CREATE TABLE windlass_workers (
    id          TEXT    NOT NULL PRIMARY KEY,
    name        TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    alive_until INTEGER NOT NULL,
    dead        INTEGER NOT NULL DEFAULT 0 CHECK (dead IN (0, 1)),
    idle        INTEGER NOT NULL DEFAULT 0 CHECK (idle IN (0, 1)),
    isolates    INTEGER NOT NULL DEFAULT 0,
    concurrency INTEGER NOT NULL,
    queues      TEXT,                                          -- a JSON array; null: every queue
    types       TEXT    NOT NULL                               -- a JSON array
) STRICT;

-- Leadership by lease: one row per duty; the term grows with every change of hands.
CREATE TABLE windlass_leaders (
    name   TEXT    NOT NULL PRIMARY KEY,
    holder TEXT    NOT NULL,
    until  INTEGER NOT NULL,
    term   INTEGER NOT NULL DEFAULT 1
) STRICT;

-- What is closed, read by every claim. Kinds: all, queue, type, tenant.
CREATE TABLE windlass_gates (
    kind   TEXT    NOT NULL CHECK (kind IN ('all', 'queue', 'type', 'tenant')),
    name   TEXT    NOT NULL DEFAULT '',
    state  TEXT    NOT NULL CHECK (state IN ('open', 'paused', 'draining')),
    reason TEXT,
    actor  TEXT,
    since  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, name)
) STRICT;

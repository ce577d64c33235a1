-- The tables of Windlass on SQLite; PostgreSQL has the same. SQLite has no schemas, so that every name begins with
-- windlass_. Ids are TEXT, times are INTEGER microseconds since the epoch in UTC, booleans are 0 and 1, JSON is TEXT.
-- No column has "now" as its default: the time comes with each statement, from the store's clock.

-- One row that identifies the installation: an enqueue on a caller's connection compares it. `wakes` grows with every
-- commit that makes a job claimable: a listener in another process learns from it that there is work, and not only that
-- another process wrote.
CREATE TABLE windlass_installation (
    id         TEXT    NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL,
    wakes      INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO windlass_installation (id, created_at)
VALUES (lower(printf('%s-%s-4%s-%s%s-%s', hex(randomblob(4)), hex(randomblob(2)), substr(hex(randomblob(2)), 2),
                     substr('89ab', 1 + (random() & 3), 1), substr(hex(randomblob(2)), 2), hex(randomblob(6)))),
        CAST(strftime('%s', 'now') AS INTEGER) * 1000000);


-- Jobs

-- Jobs that can still change: queued, failed, running, waiting, dead.
CREATE TABLE windlass_jobs (
    id               TEXT    NOT NULL PRIMARY KEY,
    token            TEXT,                                     -- the lease: the right to finish this attempt
    worker           TEXT,
    parent           TEXT,                                     -- the job that created this one
    copied_from      TEXT,
    fence            INTEGER NOT NULL DEFAULT 0,               -- the number of the lease: it grows with every claim
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
    crashes          INTEGER NOT NULL DEFAULT 0,               -- deaths of its workers that may be its fault
    rescues          INTEGER NOT NULL DEFAULT 0,               -- all deaths of its workers
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
    attempts         TEXT,                                     -- attempts that did not simply succeed, oldest first
    followed         INTEGER NOT NULL DEFAULT 0                -- its end changes other rows too: a job waits for it, or
        CHECK (followed IN (0, 1)),                            -- it holds a key, has follow-ups or children
    follow_ups       TEXT,                                     -- as JSON
    key_scope        TEXT,
    limits           TEXT,                                     -- the keys of its limits, a JSON array; mostly null
    parked_on        TEXT,                                     -- the full key on which the job is parked
    CHECK ((status = 'running') = (token IS NOT NULL)),
    CHECK ((status = 'running') = (worker IS NOT NULL))
) STRICT;

-- The order of a claim. The queue leads, so that a worker of one queue never reads the jobs of another. Tenants come
-- before run_at, so that each tenant has a lane of its own and shares by weight; jobs with limits have lanes of their
-- own. Parked jobs are not in it, so that a hundred thousand of them hide no other job.
CREATE INDEX windlass_jobs_claim
    ON windlass_jobs (queue, phase_rank, priority DESC, tenant, (limits IS NOT NULL), run_at, id)
    WHERE status IN ('queued', 'failed') AND parked_on IS NULL;

-- The jobs of a key, in the order in which they become claimable when the key has room.
CREATE INDEX windlass_jobs_parked ON windlass_jobs (parked_on, phase_rank, priority DESC, run_at, id)
    WHERE parked_on IS NOT NULL;

-- The running jobs of a worker: a sweep goes from a dead worker to its jobs.
CREATE INDEX windlass_jobs_running ON windlass_jobs (worker) WHERE status = 'running';

-- Requests to cancel are rare, and each worker reads its own in every poll.
CREATE INDEX windlass_jobs_cancel ON windlass_jobs (worker) WHERE cancel_requested;

-- From a cancelled job to the jobs that it created.
CREATE INDEX windlass_jobs_parent ON windlass_jobs (parent) WHERE parent IS NOT NULL;

-- Triggers and not the store count wake-ups, because an enqueue may use the caller's own connection.
CREATE TRIGGER windlass_jobs_arrived AFTER INSERT ON windlass_jobs WHEN NEW.status = 'queued'
BEGIN
    UPDATE windlass_installation SET wakes = wakes + 1;
END;
CREATE TRIGGER windlass_jobs_returned AFTER UPDATE OF status ON windlass_jobs WHEN NEW.status = 'queued'
BEGIN
    UPDATE windlass_installation SET wakes = wakes + 1;
END;

-- Jobs that succeeded or were cancelled. A row is written in the transaction that finishes its job, and never changes.
-- An id may come here twice (cancelled, resumed, finished), but never has two rows: a resume deletes the first.
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
    attempts         TEXT,
    followed         INTEGER NOT NULL DEFAULT 0,
    follow_ups       TEXT,
    key_scope        TEXT,
    limits           TEXT,
    parked_on        TEXT
) STRICT;
CREATE INDEX windlass_history_id ON windlass_history (id);
CREATE INDEX windlass_history_finished ON windlass_history (finished_at);


-- Workers

-- One row per start of a worker. The leases of its jobs are valid while the row is alive.
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
    types       TEXT    NOT NULL,                              -- a JSON array
    -- How many leases the worker reports with its beat: `windlass doctor` compares them with the jobs under its id. A
    -- job that its worker forgot would run for ever, because its worker is alive.
    held        INTEGER NOT NULL DEFAULT 0,
    held_at     INTEGER
) STRICT;

-- Leadership by lease: one row per duty; the term grows whenever the holder changes.
CREATE TABLE windlass_leaders (
    name   TEXT    NOT NULL PRIMARY KEY,
    holder TEXT    NOT NULL,
    until  INTEGER NOT NULL,
    term   INTEGER NOT NULL DEFAULT 1
) STRICT;


-- Flow: keys, links, waits, steps, signals

-- Unique and idempotency keys. A key that is `free` keeps its row for a replay, and refuses no job.
CREATE TABLE windlass_keys (
    scope       TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    job         TEXT    NOT NULL,
    states      TEXT,                                          -- a JSON array; null: held in any state
    until       INTEGER,
    forever     INTEGER NOT NULL DEFAULT 0,
    free        INTEGER NOT NULL DEFAULT 0,
    fingerprint TEXT,
    ended_at    INTEGER,
    PRIMARY KEY (scope, key)
) STRICT;
CREATE INDEX windlass_keys_job ON windlass_keys (job);
CREATE INDEX windlass_keys_ended ON windlass_keys (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX windlass_keys_until ON windlass_keys (until) WHERE until IS NOT NULL;

-- The names by which a job knows the jobs that it spawned or depends on.
CREATE TABLE windlass_links (
    job    TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    target TEXT    NOT NULL,
    place  INTEGER NOT NULL DEFAULT 0,
    at     INTEGER NOT NULL,
    PRIMARY KEY (job, name)
) STRICT;
CREATE INDEX windlass_links_at ON windlass_links (at);

-- What a waiting job waits for. Arrivals are counted, so that the transaction that writes the last one knows it.
CREATE TABLE windlass_waits (
    job       TEXT    NOT NULL PRIMARY KEY,
    fence     INTEGER NOT NULL DEFAULT 0,                      -- which wait of the job this is
    need      INTEGER NOT NULL DEFAULT 0,
    pending   INTEGER NOT NULL DEFAULT 0,
    succeeded INTEGER NOT NULL DEFAULT 0,
    bad       INTEGER NOT NULL DEFAULT 0,
    total     INTEGER NOT NULL DEFAULT 0,
    batch     INTEGER NOT NULL DEFAULT 0,
    signal    TEXT,
    wake_at   INTEGER
) STRICT;
CREATE INDEX windlass_waits_due ON windlass_waits (wake_at) WHERE wake_at IS NOT NULL;

-- Which job waits for which.
CREATE TABLE windlass_edges (
    awaited TEXT    NOT NULL,
    waiter  TEXT    NOT NULL,
    fence   INTEGER NOT NULL DEFAULT 0,                        -- of the wait to which the edge belongs
    policy  TEXT    NOT NULL CHECK (policy IN ('count', 'fail', 'skip', 'continue')),
    done    INTEGER NOT NULL DEFAULT 0,
    ok      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (awaited, waiter)
) STRICT;
CREATE INDEX windlass_edges_waiter ON windlass_edges (waiter);

-- Results of steps, kept across the attempts of a job.
CREATE TABLE windlass_steps (
    job   TEXT    NOT NULL,
    name  TEXT    NOT NULL,
    value TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (job, name)
) STRICT;
CREATE INDEX windlass_steps_at ON windlass_steps (at);

-- Signals that were sent to a job, the first of each name.
CREATE TABLE windlass_signals (
    job     TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    payload TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (job, name)
) STRICT;
CREATE INDEX windlass_signals_at ON windlass_signals (at);


-- Admission: gates, limits, tenants, budgets

-- Gates, which every claim reads.
CREATE TABLE windlass_gates (
    kind   TEXT    NOT NULL CHECK (kind IN ('all', 'queue', 'type', 'tenant')),
    name   TEXT    NOT NULL DEFAULT '',
    state  TEXT    NOT NULL CHECK (state IN ('open', 'paused', 'draining')),
    reason TEXT,
    actor  TEXT,
    since  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, name)
) STRICT;

-- Limits and rates by name, as programs declare them; the last declaration counts.
CREATE TABLE windlass_limits (
    name        TEXT    NOT NULL PRIMARY KEY,
    most        INTEGER CHECK (most > 0),                      -- a limit: the most jobs that run at a time
    period      REAL    CHECK (period > 0),                    -- a rate: seconds from token to token
    burst       INTEGER NOT NULL DEFAULT 1 CHECK (burst > 0),
    declared_at INTEGER NOT NULL,
    CHECK ((most IS NULL) <> (period IS NULL))
) STRICT;

-- One row per key in use: its used slots, or the time of a bucket. `next_at` moves on by a period for every token, and a
-- token is free when it is at most `burst` − 1 periods ahead of now.
CREATE TABLE windlass_limit_counters (
    key        TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    most       INTEGER,
    used       INTEGER NOT NULL DEFAULT 0 CHECK (used >= 0),
    period     REAL,
    burst      INTEGER NOT NULL DEFAULT 1,
    next_at    INTEGER NOT NULL DEFAULT 0,
    held_until INTEGER,                                        -- no token or slot is given out before
    touched_at INTEGER NOT NULL
) STRICT;

-- The keys that are held back: every worker reads them once a second.
CREATE INDEX windlass_limit_counters_held ON windlass_limit_counters (held_until) WHERE held_until IS NOT NULL;

-- Weights of tenants; a tenant without a row has the weight 1.
CREATE TABLE windlass_tenants (
    name   TEXT NOT NULL PRIMARY KEY,
    weight REAL NOT NULL CHECK (weight > 0)
) STRICT;

-- What a tenant or a queue may cost per window. `spent` belongs to the window that ends at `until`.
CREATE TABLE windlass_budgets (
    kind    TEXT    NOT NULL CHECK (kind IN ('tenant', 'queue')),
    name    TEXT    NOT NULL,
    cents   INTEGER NOT NULL CHECK (cents >= 0),
    seconds REAL    CHECK (seconds > 0),                       -- the window, counted from the epoch; null: a month
    spent   INTEGER NOT NULL DEFAULT 0,
    until   INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;

-- What attempts cost, as they reported it. The rows of a job add up to its cost_cents.
CREATE TABLE windlass_ledger (
    job    TEXT    NOT NULL,
    fence  INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    tenant TEXT    NOT NULL,
    queue  TEXT    NOT NULL,
    type   TEXT    NOT NULL,
    cents  INTEGER NOT NULL
) STRICT;
CREATE INDEX windlass_ledger_job ON windlass_ledger (job);
CREATE INDEX windlass_ledger_at ON windlass_ledger (at);


-- Schedules

-- What programs declare, what an operator edited, and when the next tick is. Only the transaction that moves `next_at`
-- on from a tick may fire it.
CREATE TABLE windlass_schedules (
    name        TEXT    NOT NULL PRIMARY KEY,
    declared    TEXT    NOT NULL,
    edited      TEXT,                                          -- the fields that differ from the declared ones
    edited_by   TEXT,
    paused      INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    paused_by   TEXT,
    paused_at   INTEGER,
    reason      TEXT,
    next_at     INTEGER,                                       -- null: never again
    last_at     INTEGER,                                       -- the last tick that fired
    last_job    TEXT,
    declared_at INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT;
CREATE INDEX windlass_schedules_due ON windlass_schedules (next_at) WHERE NOT paused AND next_at IS NOT NULL;

-- What became of each tick.
CREATE TABLE windlass_ticks (
    schedule TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    outcome  TEXT    NOT NULL CHECK (outcome IN ('fired', 'skipped', 'missed', 'by hand')),
    job      TEXT,
    noted_at INTEGER NOT NULL,
    reason   TEXT
) STRICT;
CREATE UNIQUE INDEX windlass_ticks_once ON windlass_ticks (schedule, at) WHERE outcome <> 'by hand';
CREATE INDEX windlass_ticks_by_hand ON windlass_ticks (schedule, at) WHERE outcome = 'by hand';
CREATE INDEX windlass_ticks_noted ON windlass_ticks (noted_at);


-- Audit

-- Final transitions and operations. Rows are only added, and deleted by age. The columns of a job are null where an
-- operation changed something else, its `subject`.
CREATE TABLE windlass_audit (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    action  TEXT    NOT NULL,
    actor   TEXT,
    job     TEXT,
    type    TEXT,
    queue   TEXT,
    tenant  TEXT,
    reason  TEXT,
    subject TEXT
) STRICT;
CREATE INDEX windlass_audit_job ON windlass_audit (job);
CREATE INDEX windlass_audit_at ON windlass_audit (at);

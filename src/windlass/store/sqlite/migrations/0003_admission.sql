-- What may run now: limits, rates, fairness, gates, budgets, schedules. The same tables as on PostgreSQL.

-- `limits` are the keys a job counts against, a JSON array; null for most jobs. `parked_on` is the one it was found full
-- at: a parked job is not in the claim's index, so that a hundred thousand of them hide nobody.
ALTER TABLE windlass_jobs ADD COLUMN limits TEXT;
ALTER TABLE windlass_jobs ADD COLUMN parked_on TEXT;
ALTER TABLE windlass_history ADD COLUMN limits TEXT;
ALTER TABLE windlass_history ADD COLUMN parked_on TEXT;

-- The claim's order. Tenants come before run_at, so that each has a lane of its own and shares by weight; jobs with
-- limits have lanes of their own.
DROP INDEX windlass_jobs_claim;
CREATE INDEX windlass_jobs_claim
    ON windlass_jobs (queue, phase_rank, priority DESC, tenant, (limits IS NOT NULL), run_at, id)
    WHERE status IN ('queued', 'failed') AND parked_on IS NULL;

-- Who comes next when a key has room again.
CREATE INDEX windlass_jobs_parked ON windlass_jobs (parked_on, phase_rank, priority DESC, run_at, id)
    WHERE parked_on IS NOT NULL;

-- Limits and rates by name, as programs declare them: the last that started is right.
CREATE TABLE windlass_limits (
    name        TEXT    NOT NULL PRIMARY KEY,
    most        INTEGER CHECK (most > 0),                      -- a limit: so many at a time
    period      REAL    CHECK (period > 0),                    -- a rate: seconds from token to token
    burst       INTEGER NOT NULL DEFAULT 1 CHECK (burst > 0),
    declared_at INTEGER NOT NULL,
    CHECK ((most IS NULL) <> (period IS NULL))
) STRICT;

-- One row per key in use: slots counted, or a bucket's time. `next_at` moves on by a period for every token, and a token
-- is there when it is at most `burst` − 1 periods ahead of now.
CREATE TABLE windlass_limit_counters (
    key        TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    most       INTEGER,
    used       INTEGER NOT NULL DEFAULT 0 CHECK (used >= 0),
    period     REAL,
    burst      INTEGER NOT NULL DEFAULT 1,
    next_at    INTEGER NOT NULL DEFAULT 0,
    held_until INTEGER,                                        -- nobody takes a token before
    touched_at INTEGER NOT NULL
) STRICT;

-- What everybody holds back: every worker asks once a second.
CREATE INDEX windlass_limit_counters_held ON windlass_limit_counters (held_until) WHERE held_until IS NOT NULL;

-- Weights of tenants; one without a row has weight 1.
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

-- What attempts cost, as it was reported. The rows of a job add up to its cost_cents.
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

-- Schedules: what the code declares, what was edited at run time over it, and when the next tick is. A tick belongs to
-- whoever moves `next_at` on from it, and to nobody else.
CREATE TABLE windlass_schedules (
    name        TEXT    NOT NULL PRIMARY KEY,
    declared    TEXT    NOT NULL,
    edited      TEXT,                                          -- fields that differ from the code's
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

-- Operators act on more than jobs: the columns that tell of one may be empty. SQLite cannot say so of a column that is
-- there, so that the table is made anew.
CREATE TABLE windlass_audit_new (
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
INSERT INTO windlass_audit_new (number, at, action, actor, job, type, queue, tenant, reason)
SELECT number, at, action, actor, job, type, queue, tenant, reason FROM windlass_audit;
DROP TABLE windlass_audit;
ALTER TABLE windlass_audit_new RENAME TO windlass_audit;
CREATE INDEX windlass_audit_job ON windlass_audit (job);
CREATE INDEX windlass_audit_at ON windlass_audit (at);

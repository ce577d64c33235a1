-- What follows what: keys, steps, signals, joins, consequences, and the audit. The same tables as on PostgreSQL.

-- `followed` says that a job's end changes more than itself: somebody waits for it, it holds a key, has follow-ups or
-- children.
ALTER TABLE windlass_jobs ADD COLUMN followed INTEGER NOT NULL DEFAULT 0 CHECK (followed IN (0, 1));
ALTER TABLE windlass_jobs ADD COLUMN consequences TEXT;
ALTER TABLE windlass_jobs ADD COLUMN key_scope TEXT;
ALTER TABLE windlass_history ADD COLUMN followed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE windlass_history ADD COLUMN consequences TEXT;
ALTER TABLE windlass_history ADD COLUMN key_scope TEXT;

-- From a cancelled job to those it created.
CREATE INDEX windlass_jobs_parent ON windlass_jobs (parent) WHERE parent IS NOT NULL;

-- Unique and idempotency keys. A key that is `free` keeps its row for a replay and refuses nobody.
CREATE TABLE windlass_keys (
    scope       TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    job         TEXT    NOT NULL,
    states      TEXT,                                          -- a JSON array; null: in any
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

-- Names under which a job finds those it spawned or depends on.
CREATE TABLE windlass_links (
    job    TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    target TEXT    NOT NULL,
    place  INTEGER NOT NULL DEFAULT 0,
    at     INTEGER NOT NULL,
    PRIMARY KEY (job, name)
) STRICT;
CREATE INDEX windlass_links_at ON windlass_links (at);

-- What a waiting job waits for: counted, so that the last arrival, whoever writes it, knows that it is the last.
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

CREATE TABLE windlass_edges (
    awaited TEXT    NOT NULL,
    waiter  TEXT    NOT NULL,
    fence   INTEGER NOT NULL DEFAULT 0,                        -- of the wait it belongs to
    policy  TEXT    NOT NULL CHECK (policy IN ('count', 'fail', 'skip', 'continue')),
    done    INTEGER NOT NULL DEFAULT 0,
    ok      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (awaited, waiter)
) STRICT;
CREATE INDEX windlass_edges_waiter ON windlass_edges (waiter);

-- Results of steps, remembered across attempts.
CREATE TABLE windlass_steps (
    job   TEXT    NOT NULL,
    name  TEXT    NOT NULL,
    value TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (job, name)
) STRICT;
CREATE INDEX windlass_steps_at ON windlass_steps (at);

CREATE TABLE windlass_signals (
    job     TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    payload TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (job, name)
) STRICT;
CREATE INDEX windlass_signals_at ON windlass_signals (at);

-- Final transitions and what operators did. Rows are only added, and pruned by age.
CREATE TABLE windlass_audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    action TEXT    NOT NULL,
    actor  TEXT,
    job    TEXT    NOT NULL,
    type   TEXT    NOT NULL,
    queue  TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    reason TEXT
) STRICT;
CREATE INDEX windlass_audit_job ON windlass_audit (job);
CREATE INDEX windlass_audit_at ON windlass_audit (at);

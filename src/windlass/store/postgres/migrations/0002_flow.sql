-- What follows what: keys, steps, signals, joins, consequences, and the audit.

-- `followed` says that a job's end changes more than itself: somebody waits for it, it holds a key, has follow-ups or
-- children. The statement that finishes plain jobs leaves such a row alone, so that plain jobs pay nothing for it; a
-- waiter sets it under the row's lock, so that a finish either comes first or sees it.
ALTER TABLE windlass.jobs ADD COLUMN followed boolean NOT NULL DEFAULT false, ADD COLUMN consequences json,
    ADD COLUMN key_scope text;
ALTER TABLE windlass.history ADD COLUMN followed boolean NOT NULL DEFAULT false, ADD COLUMN consequences json,
    ADD COLUMN key_scope text;

-- From a cancelled job to those it created.
CREATE INDEX jobs_parent ON windlass.jobs (parent) WHERE parent IS NOT NULL;

-- Unique and idempotency keys. A key that is `free` keeps its row for a replay and refuses nobody.
CREATE TABLE windlass.keys (
    scope       text        NOT NULL,
    key         text        NOT NULL,
    job         uuid        NOT NULL,
    states      text[],                                        -- it refuses while its job is in one; null: in any
    until       timestamptz,                                   -- …and not after this
    forever     boolean     NOT NULL DEFAULT false,            -- outlives its job's history
    free        boolean     NOT NULL DEFAULT false,
    fingerprint text,                                          -- of type and input
    ended_at    timestamptz,                                   -- when its job ended
    PRIMARY KEY (scope, key)
);
CREATE INDEX keys_job ON windlass.keys (job);
CREATE INDEX keys_ended ON windlass.keys (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX keys_until ON windlass.keys (until) WHERE until IS NOT NULL;

-- Names under which a job finds those it spawned or depends on.
CREATE TABLE windlass.links (
    job    uuid        NOT NULL,
    name   text        NOT NULL,
    target uuid        NOT NULL,
    place  integer     NOT NULL DEFAULT 0,
    at     timestamptz NOT NULL DEFAULT windlass.now(),
    PRIMARY KEY (job, name)
);
CREATE INDEX links_at ON windlass.links (at);

-- What a waiting job waits for: counted, so that the last arrival, whoever writes it, knows that it is the last.
CREATE TABLE windlass.waits (
    job       uuid        NOT NULL PRIMARY KEY,
    fence     bigint      NOT NULL DEFAULT 0,                  -- which wait of the job this is
    need      integer     NOT NULL DEFAULT 0,
    pending   integer     NOT NULL DEFAULT 0,
    succeeded integer     NOT NULL DEFAULT 0,
    bad       integer     NOT NULL DEFAULT 0,
    total     integer     NOT NULL DEFAULT 0,
    batch     boolean     NOT NULL DEFAULT false,
    signal    text,
    wake_at   timestamptz
);
CREATE INDEX waits_due ON windlass.waits (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX waits_met ON windlass.waits (job) WHERE need > 0 AND (succeeded >= need OR succeeded + pending < need);

CREATE TABLE windlass.edges (
    awaited uuid    NOT NULL,
    waiter  uuid    NOT NULL,
    fence   bigint  NOT NULL DEFAULT 0,                        -- of the wait it belongs to
    policy  text    NOT NULL CHECK (policy IN ('count', 'fail', 'skip', 'continue')),
    done    boolean NOT NULL DEFAULT false,
    ok      boolean NOT NULL DEFAULT false,
    PRIMARY KEY (awaited, waiter)
);
CREATE INDEX edges_waiter ON windlass.edges (waiter);

-- Results of steps, remembered across attempts.
CREATE TABLE windlass.steps (
    job   uuid        NOT NULL,
    name  text        NOT NULL,
    value json        NOT NULL,
    at    timestamptz NOT NULL DEFAULT windlass.now(),
    PRIMARY KEY (job, name)
);
CREATE INDEX steps_at ON windlass.steps (at);

CREATE TABLE windlass.signals (
    job     uuid        NOT NULL,
    name    text        NOT NULL,
    payload json        NOT NULL,
    at      timestamptz NOT NULL DEFAULT windlass.now(),
    PRIMARY KEY (job, name)
);
CREATE INDEX signals_at ON windlass.signals (at);

-- Final transitions and what operators did. Rows are only added; retention drops whole partitions.
CREATE SEQUENCE windlass.audit_number AS bigint;
CREATE TABLE windlass.audit (
    number bigint      NOT NULL DEFAULT nextval('windlass.audit_number'),
    at     timestamptz NOT NULL DEFAULT windlass.now(),
    action text        NOT NULL,
    actor  text,
    job    uuid        NOT NULL,
    type   text        NOT NULL,
    queue  text        NOT NULL,
    tenant text        NOT NULL,
    reason text
) PARTITION BY RANGE (at);
CREATE INDEX audit_job ON windlass.audit (job);
CREATE INDEX audit_newest ON windlass.audit (number);
CREATE TABLE windlass.audit_default PARTITION OF windlass.audit DEFAULT;

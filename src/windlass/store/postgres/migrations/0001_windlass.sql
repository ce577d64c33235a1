-- The schema: the clock, then the tables by subject (installation, jobs, workers, flow, limits, admission, schedules,
-- audit), then functions. Every statement names the schema, so that no search_path is needed behind a pooler.

-- The clock. Every time comes from the database, and from this one function. It is plain SQL and STABLE, so that the
-- planner inlines it and `run_at <= windlass.now()` stays an index condition. It is the statement's time: a delay
-- inside a long transaction counts from the call. Tests replace the function by a clock that they can move.
CREATE FUNCTION windlass.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS 'SELECT statement_timestamp()';

-- One row that identifies this installation. An enqueue on the caller's connection is compared with it.
CREATE TABLE windlass.installation (
    id         uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp()
);
INSERT INTO windlass.installation DEFAULT VALUES;

-- Jobs

-- Jobs that can still change: queued, failed, running, waiting, dead.
CREATE TABLE windlass.jobs (
    id               uuid        NOT NULL PRIMARY KEY,
    token            uuid,                                     -- of the lease: compared for equality
    worker           uuid,
    parent           uuid,                                     -- the job that created this one
    copied_from      uuid,
    fence            bigint      NOT NULL DEFAULT 0,           -- of the lease: grows with every claim
    run_at           timestamptz NOT NULL DEFAULT windlass.now(),
    created_at       timestamptz NOT NULL DEFAULT windlass.now(),
    updated_at       timestamptz NOT NULL DEFAULT windlass.now(),
    claimed_at       timestamptz,
    started_at       timestamptz,
    finished_at      timestamptz,
    cost_cents       bigint      NOT NULL DEFAULT 0,
    priority         integer     NOT NULL DEFAULT 0,
    attempt          integer     NOT NULL DEFAULT 0,
    max_attempts     integer     NOT NULL DEFAULT 4 CHECK (max_attempts > 0),
    crashes          integer     NOT NULL DEFAULT 0,           -- deaths of workers that this job may have caused
    rescues          integer     NOT NULL DEFAULT 0,           -- deaths of workers that held it, whatever the cause
    phase_rank       integer     NOT NULL DEFAULT 0,
    total            integer,
    processed        integer     NOT NULL DEFAULT 0,
    failed           integer     NOT NULL DEFAULT 0,
    cancel_requested boolean     NOT NULL DEFAULT false,
    status           text        NOT NULL DEFAULT 'queued'
        CHECK (status IN ('queued', 'running', 'failed', 'waiting', 'dead')),
    tenant           text        NOT NULL DEFAULT 'default',
    queue            text        NOT NULL DEFAULT 'default',
    type             text        NOT NULL,
    phase            text        NOT NULL DEFAULT 'default',
    pipeline         text,
    key              text,
    trace            text,
    reason           text,
    input            json        NOT NULL,
    output           json,
    error            json,
    attempts         json,                                     -- attempts worth a record, oldest first
    -- Whether the job's end changes more than the job: another job waits for it, it holds a key, has follow-ups or
    -- children. The statement that finishes plain jobs leaves such a row alone, so that plain jobs pay nothing for it.
    -- A waiting job sets it under the row's lock, so that a finish either comes first or sees it.
    followed         boolean     NOT NULL DEFAULT false,
    follow_ups       json,
    key_scope        text,
    limits           text[],                                   -- keys the job counts against; null for most jobs
    -- The full key that the job was parked on. A parked job is not in the claim's index, so that a hundred thousand of
    -- them do not stand between a claim and the jobs that may run.
    parked_on        text,
    CHECK ((status = 'running') = (token IS NOT NULL)),
    CHECK ((status = 'running') = (worker IS NOT NULL))
) WITH (
    -- Every job leaves one dead row at the claim and one at the finish: vacuum by count, not by share.
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1
);

-- The claim's order. -priority makes all columns ascend, so that a row comparison can skip from lane to lane. Tenants
-- come before run_at, so that each tenant has a lane of its own and tenants share by weight. Jobs with limits have
-- lanes of their own, so that jobs without limits pay nothing for them.
CREATE INDEX jobs_claim ON windlass.jobs (queue, phase_rank, (-priority), tenant, (limits IS NOT NULL), run_at, id)
    WHERE status IN ('queued', 'failed') AND parked_on IS NULL;

-- The order in which parked jobs are unparked when a key has room again.
CREATE INDEX jobs_parked ON windlass.jobs (parked_on, phase_rank, (-priority), run_at, id)
    WHERE parked_on IS NOT NULL;

-- From a worker to its running jobs: the sweep reads the jobs of dead workers.
CREATE INDEX jobs_running ON windlass.jobs (worker) WHERE status = 'running';

-- Requests to cancel are rare, and each worker reads its own at every poll.
CREATE INDEX jobs_cancel ON windlass.jobs (worker) WHERE cancel_requested;

-- From a cancelled job to the jobs that it created.
CREATE INDEX jobs_parent ON windlass.jobs (parent) WHERE parent IS NOT NULL;

-- Jobs that succeeded or were cancelled. A row gets here in the statement that finishes the job and never changes.
-- Retention drops whole partitions. The default partition only takes rows of a day that has no partition.
CREATE TABLE windlass.history (
    LIKE windlass.jobs INCLUDING DEFAULTS,
    CHECK (status IN ('succeeded', 'cancelled')),
    CHECK (finished_at IS NOT NULL)
) PARTITION BY RANGE (finished_at);
CREATE INDEX history_id ON windlass.history (id);
CREATE TABLE windlass.history_default PARTITION OF windlass.history DEFAULT;

-- Workers

-- One row per worker process. Its leases live as long as this row does.
CREATE TABLE windlass.workers (
    id          uuid        NOT NULL PRIMARY KEY,
    name        text        NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT windlass.now(),
    alive_until timestamptz NOT NULL,
    dead        boolean     NOT NULL DEFAULT false,
    idle        boolean     NOT NULL DEFAULT false,
    isolates    boolean     NOT NULL DEFAULT false,            -- runs suspects in processes of their own
    concurrency integer     NOT NULL,
    queues      text[],                                        -- null: every queue
    types       text[]      NOT NULL,
    -- How many leases the worker reports with its beat. `windlass doctor` compares the number with the jobs that name
    -- the worker: a job that its live worker forgot would run for ever.
    held        integer     NOT NULL DEFAULT 0,
    held_at     timestamptz                                    -- when it reported that
) WITH (fillfactor = 50);

-- Leadership by lease: one row per duty. The term grows with every new holder.
CREATE TABLE windlass.leaders (
    name   text        NOT NULL PRIMARY KEY,
    holder uuid        NOT NULL,
    until  timestamptz NOT NULL,
    term   bigint      NOT NULL DEFAULT 1
);

-- Flow: keys, links, waits, steps, signals

-- Unique and idempotency keys. A key that is `free` keeps its row for a replay and refuses no job.
CREATE TABLE windlass.keys (
    scope       text        NOT NULL,
    key         text        NOT NULL,
    job         uuid        NOT NULL,
    states      text[],                                        -- the key refuses while its job is in one; null: in any
    until       timestamptz,                                   -- … and not after this
    forever     boolean     NOT NULL DEFAULT false,            -- the key outlives its job's history
    free        boolean     NOT NULL DEFAULT false,
    fingerprint text,                                          -- of type and input
    ended_at    timestamptz,                                   -- when its job ended
    PRIMARY KEY (scope, key)
);
CREATE INDEX keys_job ON windlass.keys (job);
CREATE INDEX keys_ended ON windlass.keys (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX keys_until ON windlass.keys (until) WHERE until IS NOT NULL;

-- Names under which a job finds the jobs that it spawned or depends on.
CREATE TABLE windlass.links (
    job    uuid        NOT NULL,
    name   text        NOT NULL,
    target uuid        NOT NULL,
    place  integer     NOT NULL DEFAULT 0,
    at     timestamptz NOT NULL DEFAULT windlass.now(),
    PRIMARY KEY (job, name)
);
CREATE INDEX links_at ON windlass.links (at);

-- What a waiting job waits for. Arrivals are counted under the row's lock, so that exactly one arrival is the last.
CREATE TABLE windlass.waits (
    job       uuid        NOT NULL PRIMARY KEY,
    fence     bigint      NOT NULL DEFAULT 0,                  -- which wait of the job this is
    need      integer     NOT NULL DEFAULT 0,                  -- how many awaited jobs have to succeed
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

-- Which job waits for which.
CREATE TABLE windlass.edges (
    awaited uuid    NOT NULL,
    waiter  uuid    NOT NULL,
    fence   bigint  NOT NULL DEFAULT 0,                        -- of the wait that the edge belongs to
    policy  text    NOT NULL CHECK (policy IN ('count', 'fail', 'skip', 'continue')),
    done    boolean NOT NULL DEFAULT false,
    ok      boolean NOT NULL DEFAULT false,
    PRIMARY KEY (awaited, waiter)
);
CREATE INDEX edges_waiter ON windlass.edges (waiter);

-- Results of steps, kept for later attempts.
CREATE TABLE windlass.steps (
    job   uuid        NOT NULL,
    name  text        NOT NULL,
    value json        NOT NULL,
    at    timestamptz NOT NULL DEFAULT windlass.now(),
    PRIMARY KEY (job, name)
);
CREATE INDEX steps_at ON windlass.steps (at);

-- Signals that were sent to jobs: the first of each name.
CREATE TABLE windlass.signals (
    job     uuid        NOT NULL,
    name    text        NOT NULL,
    payload json        NOT NULL,
    at      timestamptz NOT NULL DEFAULT windlass.now(),
    PRIMARY KEY (job, name)
);
CREATE INDEX signals_at ON windlass.signals (at);

-- Limits and rates

-- Limits and rates by name, as programs declare them. The declaration of the program that started last counts.
CREATE TABLE windlass.limits (
    name        text        NOT NULL PRIMARY KEY,
    most        integer     CHECK (most > 0),                  -- of a limit: the most jobs that run at a time
    period      float8      CHECK (period > 0),                -- of a rate: seconds from token to token
    burst       integer     NOT NULL DEFAULT 1 CHECK (burst > 0),
    declared_at timestamptz NOT NULL DEFAULT windlass.now(),
    CHECK ((most IS NULL) <> (period IS NULL))
);

-- One row per key in use. Slots are counted here and nowhere else, under the row's lock: by the claim that takes one,
-- and by the transaction that ends the attempt. A bucket is one time: `next_at` moves on by a period for every token,
-- and a token is there when `next_at` is at most `burst` − 1 periods ahead of now. The rows are narrow and the pages
-- half empty, so that updates stay on their page.
CREATE TABLE windlass.limit_counters (
    key        text        NOT NULL PRIMARY KEY,
    name       text        NOT NULL,
    most       integer,
    used       integer     NOT NULL DEFAULT 0 CHECK (used >= 0),
    period     float8,
    burst      integer     NOT NULL DEFAULT 1,
    next_at    timestamptz NOT NULL DEFAULT '2000-01-01 00:00+00',
    held_until timestamptz,                                    -- no slot and no token is given out before
    full_hint  boolean     NOT NULL DEFAULT false,             -- a claim left it full; some slots are still taken
    touched_at timestamptz NOT NULL DEFAULT windlass.now(),
    -- Whether jobs may be parked on the key. The transaction that releases a slot holds this row and reads the column
    -- here: to read the jobs would need a snapshot of its own, and so another round trip for every batch that ends.
    has_parked boolean     NOT NULL DEFAULT false,
    -- Whether `used` is known. A row that is made while jobs of its key run already, because they were claimed before
    -- the limit was declared, is closed (`used` = `most`) until `count_slots` has counted these jobs.
    counted    boolean     NOT NULL DEFAULT true
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- Full keys: a claim skips their jobs. A column of its own and not `used`: every claim and every finish would write an
-- index over `used`.
CREATE INDEX limit_counters_full ON windlass.limit_counters (key) WHERE full_hint;

-- Keys that are held back: every worker reads them once a second.
CREATE INDEX limit_counters_held ON windlass.limit_counters (held_until) WHERE held_until IS NOT NULL;

CREATE INDEX limit_counters_uncounted ON windlass.limit_counters (key) WHERE NOT counted;

-- Admission: gates, tenants, budgets

-- Gates, read by every claim. Kinds: all, queue, type, tenant.
CREATE TABLE windlass.gates (
    kind   text        NOT NULL CHECK (kind IN ('all', 'queue', 'type', 'tenant')),
    name   text        NOT NULL DEFAULT '',
    state  text        NOT NULL CHECK (state IN ('open', 'paused', 'draining')),
    reason text,
    actor  text,
    since  timestamptz NOT NULL DEFAULT windlass.now(),
    PRIMARY KEY (kind, name)
);

-- Weights of tenants. A tenant without a row has weight 1.
CREATE TABLE windlass.tenants (
    name   text   NOT NULL PRIMARY KEY,
    weight float8 NOT NULL CHECK (weight > 0)
);

-- What a tenant or a queue may cost per window. `spent` belongs to the window that ends at `until`.
CREATE TABLE windlass.budgets (
    kind    text        NOT NULL CHECK (kind IN ('tenant', 'queue')),
    name    text        NOT NULL,
    cents   bigint      NOT NULL CHECK (cents >= 0),
    seconds float8      CHECK (seconds > 0),                   -- the window, counted from the epoch; null: a month
    spent   bigint      NOT NULL DEFAULT 0,
    until   timestamptz NOT NULL,
    PRIMARY KEY (kind, name)
);

-- What attempts cost, as it was reported. The rows of a job add up to its cost_cents.
CREATE TABLE windlass.ledger (
    job    uuid        NOT NULL,
    fence  bigint      NOT NULL,
    at     timestamptz NOT NULL DEFAULT windlass.now(),
    tenant text        NOT NULL,
    queue  text        NOT NULL,
    type   text        NOT NULL,
    cents  bigint      NOT NULL
);
CREATE INDEX ledger_job ON windlass.ledger (job);
CREATE INDEX ledger_at ON windlass.ledger (at);

-- Schedules: what the program declares, what an operator edited over it, and when the next tick is. A tick belongs to
-- the transaction that moves `next_at` on from it, and to no other.
CREATE TABLE windlass.schedules (
    name        text        NOT NULL PRIMARY KEY,
    declared    json        NOT NULL,
    edited      json,                                          -- fields that differ from the declared ones
    edited_by   text,
    paused      boolean     NOT NULL DEFAULT false,
    paused_by   text,
    paused_at   timestamptz,
    reason      text,
    next_at     timestamptz,                                   -- null: never again
    last_at     timestamptz,                                   -- the last tick that fired
    last_job    uuid,
    declared_at timestamptz NOT NULL DEFAULT windlass.now(),
    updated_at  timestamptz NOT NULL DEFAULT windlass.now()
);
CREATE INDEX schedules_due ON windlass.schedules (next_at) WHERE NOT paused AND next_at IS NOT NULL;

-- What became of each tick. A tick of the timetable is recorded once; ticks by hand may share a time.
CREATE TABLE windlass.ticks (
    schedule text        NOT NULL,
    at       timestamptz NOT NULL,
    outcome  text        NOT NULL CHECK (outcome IN ('fired', 'skipped', 'missed', 'by hand')),
    job      uuid,
    noted_at timestamptz NOT NULL DEFAULT windlass.now(),
    reason   text
);
CREATE UNIQUE INDEX ticks_once ON windlass.ticks (schedule, at) WHERE outcome <> 'by hand';
CREATE INDEX ticks_by_hand ON windlass.ticks (schedule, at) WHERE outcome = 'by hand';
CREATE INDEX ticks_noted ON windlass.ticks (noted_at);

-- Audit: final transitions of jobs, and actions of operators on jobs or on a `subject` that is no job. Rows are only added;
-- retention drops whole partitions.
CREATE SEQUENCE windlass.audit_number AS bigint;
CREATE TABLE windlass.audit (
    number  bigint      NOT NULL DEFAULT nextval('windlass.audit_number'),
    at      timestamptz NOT NULL DEFAULT windlass.now(),
    action  text        NOT NULL,
    actor   text,
    job     uuid,
    type    text,
    queue   text,
    tenant  text,
    reason  text,
    subject text
) PARTITION BY RANGE (at);
CREATE INDEX audit_job ON windlass.audit (job);
CREATE INDEX audit_newest ON windlass.audit (number);
CREATE TABLE windlass.audit_default PARTITION OF windlass.audit DEFAULT;

-- Functions

-- How many slots or tokens a counter has now.
CREATE FUNCTION windlass.room(most integer, used integer, period float8, burst integer, next_at timestamptz,
                              held_until timestamptz)
RETURNS integer LANGUAGE sql STABLE
AS $$
    SELECT CASE
        WHEN held_until > windlass.now() THEN 0
        WHEN period IS NOT NULL THEN least(burst, greatest(0, floor(
            burst - extract(epoch FROM next_at - windlass.now())::float8 / period + 1e-6)))::integer
        WHEN most IS NOT NULL THEN greatest(0, most - used)
        ELSE 1000000 END
$$;

-- The end of a budget's current window, in UTC.
CREATE FUNCTION windlass.window_end(seconds float8) RETURNS timestamptz LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN seconds IS NULL
        THEN (date_trunc('month', windlass.now() AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC'
        ELSE to_timestamp((floor(extract(epoch FROM windlass.now())::float8 / seconds) + 1) * seconds) END
$$;

-- Add an entry to a job's attempts. They are kept on the job itself, so that a first success without a record costs
-- nothing and the history takes them along. The last hundred are kept: a job that snoozes for a year must not grow
-- without end. A value of another shape (a row written by hand) is kept as the first of the attempts: it must not keep
-- a job from its end, or the jobs of a dead worker from their rescue.
CREATE FUNCTION windlass.remember(attempts json, entry json) RETURNS json LANGUAGE sql IMMUTABLE
AS $$
    SELECT json_agg(element ORDER BY place)
      FROM (SELECT element, place
              FROM json_array_elements(
                       CASE WHEN attempts IS NULL OR json_typeof(attempts) = 'null' THEN '[]'::json
                            WHEN json_typeof(attempts) = 'array' THEN attempts
                            ELSE json_build_array(attempts) END) WITH ORDINALITY AS past (element, place)
            UNION ALL
            SELECT entry, 1000000
             ORDER BY place DESC
             LIMIT 100) AS kept (element, place)
$$;

-- What a rescue writes as the error of an attempt that its worker's silence interrupted.
CREATE FUNCTION windlass.crash(attempt integer) RETURNS json LANGUAGE sql STABLE
AS $$
    SELECT json_build_object(
        'type', 'WorkerDied', 'message', 'the worker that held this job died or lost its lease',
        'attempt', attempt, 'attemptedAt', windlass.now())
$$;

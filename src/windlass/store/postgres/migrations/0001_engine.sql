-- The engine's tables. Every statement names the schema, so that no search_path is needed behind a pooler.

-- Time is the database's and comes from this one place. Plain SQL and STABLE, so that the planner inlines it and
-- `run_at <= windlass.now()` stays an index condition. Statement time: a delay inside a long transaction counts
-- from the call. Tests replace it by a clock they can move.
CREATE FUNCTION windlass.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS 'SELECT statement_timestamp()';

-- One row that says which installation this is: an enqueue on the caller's connection is compared with it.
CREATE TABLE windlass.installation (
    id         uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT statement_timestamp()
);
INSERT INTO windlass.installation DEFAULT VALUES;

-- Jobs that can still change: queued, failed, running, waiting, dead.
CREATE TABLE windlass.jobs (
    id               uuid        NOT NULL PRIMARY KEY,
    token            uuid,                                     -- the lease: equality
    worker           uuid,
    parent           uuid,
    copied_from      uuid,
    fence            bigint      NOT NULL DEFAULT 0,           -- the lease: order
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
    crashes          integer     NOT NULL DEFAULT 0,           -- deaths that speak against this job
    rescues          integer     NOT NULL DEFAULT 0,           -- deaths of workers that held it, guilty or not
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
    attempts         json,                                     -- attempts worth a word, oldest first
    CHECK ((status = 'running') = (token IS NOT NULL)),
    CHECK ((status = 'running') = (worker IS NOT NULL))
) WITH (
    -- Every job makes one dead row at the claim and one at the finish: vacuum by count, not by share.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1
);

-- The claim's order. -priority makes one direction of it all, so that a row comparison can skip from lane to lane.
CREATE INDEX jobs_claim ON windlass.jobs (queue, phase_rank, (-priority), run_at, id)
    WHERE status IN ('queued', 'failed');

-- Who holds what: the sweeper's way from a dead worker to its jobs.
CREATE INDEX jobs_running ON windlass.jobs (worker) WHERE status = 'running';

-- Requests to cancel are rare, and each worker looks for its own every poll.
CREATE INDEX jobs_cancel ON windlass.jobs (worker) WHERE cancel_requested;

-- Jobs that ended well or were cancelled. Retention drops whole partitions; the default one only catches what
-- nobody prepared a day for. Rows get here in the statement that finishes them and never change.
CREATE TABLE windlass.history (
    LIKE windlass.jobs INCLUDING DEFAULTS,
    CHECK (status IN ('succeeded', 'cancelled')),
    CHECK (finished_at IS NOT NULL)
) PARTITION BY RANGE (finished_at);
CREATE INDEX history_id ON windlass.history (id);
CREATE TABLE windlass.history_default PARTITION OF windlass.history DEFAULT;

-- A worker's incarnation. Its leases live while this row does.
CREATE TABLE windlass.workers (
    id          uuid        NOT NULL PRIMARY KEY,
    name        text        NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT windlass.now(),
    alive_until timestamptz NOT NULL,
    dead        boolean     NOT NULL DEFAULT false,
    idle        boolean     NOT NULL DEFAULT false,
    isolates    boolean     NOT NULL DEFAULT false,            -- runs suspects in processes of their own
    concurrency integer     NOT NULL,
    queues      text[],
    types       text[]      NOT NULL
) WITH (fillfactor = 50);

-- Leadership by lease: one row per duty; the term grows with every change of hands.
CREATE TABLE windlass.leaders (
    name   text        NOT NULL PRIMARY KEY,
    holder uuid        NOT NULL,
    until  timestamptz NOT NULL,
    term   bigint      NOT NULL DEFAULT 1
);

-- What is closed, read by every claim. Kinds: all, queue, type, tenant.
CREATE TABLE windlass.gates (
    kind   text        NOT NULL CHECK (kind IN ('all', 'queue', 'type', 'tenant')),
    name   text        NOT NULL DEFAULT '',
    state  text        NOT NULL CHECK (state IN ('open', 'paused', 'draining')),
    reason text,
    actor  text,
    since  timestamptz NOT NULL DEFAULT windlass.now(),
    PRIMARY KEY (kind, name)
);

-- Attempts worth a word are remembered on the job itself, so that a silent first success costs nothing and history
-- takes them along. The last hundred are kept: a job that snoozes for a year must not grow without end.
CREATE FUNCTION windlass.remember(attempts json, entry json) RETURNS json LANGUAGE sql IMMUTABLE
AS $$
    SELECT json_agg(element ORDER BY place)
      FROM (SELECT element, place
              FROM json_array_elements(coalesce(attempts, '[]'::json)) WITH ORDINALITY AS past (element, place)
            UNION ALL
            SELECT entry, 1000000
             ORDER BY place DESC
             LIMIT 100) AS kept (element, place)
$$;

-- What a rescue writes as the error of the attempt whose worker went silent.
CREATE FUNCTION windlass.crash(attempt integer) RETURNS json LANGUAGE sql STABLE
AS $$
    SELECT json_build_object(
        'type', 'WorkerDied', 'message', 'the worker that held this job died or lost its lease',
        'attempt', attempt, 'attemptedAt', windlass.now())
$$;

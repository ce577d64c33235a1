-- What may run now: limits, rates, fairness, gates, budgets, schedules.

-- `limits` are the keys a job counts against; null for most jobs. `parked_on` is the one it was found full at: a parked
-- job is not in the claim's index, so that a hundred thousand of them hide nobody.
ALTER TABLE windlass.jobs ADD COLUMN limits text[], ADD COLUMN parked_on text;
ALTER TABLE windlass.history ADD COLUMN limits text[], ADD COLUMN parked_on text;

-- The claim's order. Tenants come before run_at, so that each has a lane of its own and shares by weight; jobs with
-- limits have lanes of their own, so that others pay nothing for them.
DROP INDEX windlass.jobs_claim;
CREATE INDEX jobs_claim ON windlass.jobs (queue, phase_rank, (-priority), tenant, (limits IS NOT NULL), run_at, id)
    WHERE status IN ('queued', 'failed') AND parked_on IS NULL;

-- Who comes next when a key has room again.
CREATE INDEX jobs_parked ON windlass.jobs (parked_on, phase_rank, (-priority), run_at, id)
    WHERE parked_on IS NOT NULL;

-- Limits and rates by name, as programs declare them: the last that started is right.
CREATE TABLE windlass.limits (
    name        text        NOT NULL PRIMARY KEY,
    most        integer     CHECK (most > 0),                  -- a limit: so many at a time
    period      float8      CHECK (period > 0),                -- a rate: seconds from token to token
    burst       integer     NOT NULL DEFAULT 1 CHECK (burst > 0),
    declared_at timestamptz NOT NULL DEFAULT windlass.now(),
    CHECK ((most IS NULL) <> (period IS NULL))
);

-- One row per key in use. Slots are counted here and nowhere else, under the row's lock: by the claim that takes one, and
-- by the transaction that ends the attempt. A bucket is one time: `next_at` moves on by a period for every token, and
-- a token is there when it is at most `burst` − 1 periods ahead of now. Narrow and half empty, so that updates stay on the page.
CREATE TABLE windlass.limit_counters (
    key       text        NOT NULL PRIMARY KEY,
    name      text        NOT NULL,
    most      integer,
    used      integer     NOT NULL DEFAULT 0 CHECK (used >= 0),
    period    float8,
    burst     integer     NOT NULL DEFAULT 1,
    next_at   timestamptz NOT NULL DEFAULT '2000-01-01 00:00+00',
    held_until timestamptz,                                    -- nobody takes a token before
    full_hint  boolean     NOT NULL DEFAULT false,             -- a claim left it full, and not all slots were released since
    touched_at timestamptz NOT NULL DEFAULT windlass.now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

-- Keys whose jobs a claim walks past. A mark, not `used`: an index over that would be written by every claim and finish.
CREATE INDEX limit_counters_full ON windlass.limit_counters (key) WHERE full_hint;

-- What everybody holds back: every worker asks once a second.
CREATE INDEX limit_counters_held ON windlass.limit_counters (held_until) WHERE held_until IS NOT NULL;

-- How many slots or tokens a turnstile has now.
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

-- Weights of tenants; one without a row has weight 1.
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

-- The end of the window that is now, in UTC.
CREATE FUNCTION windlass.window_end(seconds float8) RETURNS timestamptz LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN seconds IS NULL
        THEN (date_trunc('month', windlass.now() AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC'
        ELSE to_timestamp((floor(extract(epoch FROM windlass.now())::float8 / seconds) + 1) * seconds) END
$$;

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

-- Schedules: what the code declares, what was edited at run time over it, and when the next tick is. A tick belongs to
-- whoever moves `next_at` on from it, and to nobody else.
CREATE TABLE windlass.schedules (
    name        text        NOT NULL PRIMARY KEY,
    declared    json        NOT NULL,
    edited      json,                                          -- fields that differ from the code's
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

-- What became of each tick.
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

-- Operators act on more than jobs.
ALTER TABLE windlass.audit ALTER COLUMN job DROP NOT NULL, ALTER COLUMN type DROP NOT NULL,
    ALTER COLUMN queue DROP NOT NULL, ALTER COLUMN tenant DROP NOT NULL, ADD COLUMN subject text;

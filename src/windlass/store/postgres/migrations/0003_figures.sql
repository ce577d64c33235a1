-- Indexes for lists that count. The hot path touches none of them: a job that is queued, claimed and succeeds is in no
-- one of them.

-- Jobs that are set aside, by state, queue and tenant. Its condition is one that no other statement has: a statement
-- that looks waiting jobs up by their ids would walk over all of them in this index.
CREATE INDEX jobs_aside ON windlass.jobs (status, queue, tenant)
    WHERE coalesce(status, '') IN ('failed', 'waiting', 'dead');

-- Parked jobs by queue and tenant: a claim that parks a job writes an entry, and no other claim does.
-- Its condition is one that no other statement has: the statement that unparks must go by the index jobs_parked.
CREATE INDEX jobs_parked_in ON windlass.jobs (queue, tenant, run_at) WHERE coalesce(parked_on, '') <> '';

CREATE INDEX history_cancelled ON windlass.history (id) WHERE status = 'cancelled';

-- Figures: what ended in a span of ten seconds, in a queue and phase. Each worker writes a row of its own, so that no
-- two workers wait for each other. Ends that no single statement of a worker wrote have a row with a new id as worker.
-- The leader folds the rows of past spans into one with worker 0. Pages are half empty: updates stay on their page.
CREATE TABLE windlass.figures (
    at           timestamptz NOT NULL,                         -- the start of the span
    worker       uuid        NOT NULL,
    queue        text        NOT NULL,
    phase        text        NOT NULL,
    succeeded    bigint      NOT NULL DEFAULT 0,
    advanced     bigint      NOT NULL DEFAULT 0,
    failed       bigint      NOT NULL DEFAULT 0,
    dead         bigint      NOT NULL DEFAULT 0,
    cancelled    bigint      NOT NULL DEFAULT 0,
    run_seconds  float8      NOT NULL DEFAULT 0,
    wait_seconds float8      NOT NULL DEFAULT 0,
    runs         bigint[]    NOT NULL,                         -- histograms, in the buckets of windlass.histogram()
    waits        bigint[]    NOT NULL,
    PRIMARY KEY (at, worker, queue, phase)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);

CREATE INDEX figures_unfolded ON windlass.figures (at) WHERE worker <> '00000000-0000-0000-0000-000000000000';

-- Samples of each queue's depth, written by the leader.
CREATE TABLE windlass.depths (
    at      timestamptz NOT NULL,
    queue   text        NOT NULL,
    queued  bigint      NOT NULL,
    running bigint      NOT NULL,
    failed  bigint      NOT NULL,
    waiting bigint      NOT NULL,
    dead    bigint      NOT NULL,
    lag     float8,
    PRIMARY KEY (at, queue)
);

-- Durations counted by bucket. The bounds are BOUNDS in model/figures.py.
CREATE FUNCTION windlass.histogram(seconds float8[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE
AS $$
    SELECT array_agg(coalesce(found.n, 0) ORDER BY bucket.place)
      FROM generate_series(0, 23) AS bucket (place)
      LEFT JOIN (SELECT width_bucket(value, ARRAY[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20,
                            50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000]::float8[]) AS place, count(*) AS n
                   FROM unnest(seconds) AS value
                  WHERE value IS NOT NULL
                  GROUP BY 1) AS found USING (place)
$$;

-- Two histograms, added up.
CREATE FUNCTION windlass.add_up(one bigint[], other bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE
AS $$
    SELECT array_agg(coalesce(pair.a, 0) + coalesce(pair.b, 0) ORDER BY pair.place)
      FROM unnest(one, other) WITH ORDINALITY AS pair (a, b, place)
$$;
CREATE AGGREGATE windlass.total(bigint[]) (SFUNC = windlass.add_up, STYPE = bigint[], INITCOND = '{}');

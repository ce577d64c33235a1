"""A million jobs in the shapes that lists find hard, loaded by SQL. `$1` is the number of jobs.

Ids are in the order of creation, as Windlass makes them. Dead and waiting jobs are the oldest of their database.
"""

from __future__ import annotations

ID = (
    "(lpad(to_hex(1700000000000 + i), 12, '0') || '7' || left(md5(i::text), 3) || 'a' || right(md5(i::text), 15))::uuid"
)
JOBS = (
    f"INSERT INTO windlass.jobs (id, type, input, status, queue, phase, tenant, limits, parked_on) SELECT {ID},"
    " 'usual', '{{}}', '{status}', {queue}, 'default', {tenant}, {limits}, {parked} "
    "FROM generate_series(1, $1::int) AS i"
)
PLAIN = {"status": "queued", "queue": "'mail'", "tenant": "'default'", "limits": "NULL", "parked": "NULL"}
HISTORY = (
    "INSERT INTO windlass.history (id, type, input, status, finished_at, queue)"
    f" SELECT {ID}, 'usual', '{{}}', 'succeeded', now(), 'mail' FROM generate_series(1, $1::int) AS i"
)
PIPELINE = (
    "INSERT INTO windlass.jobs (id, type, input, queue, pipeline, phase, phase_rank)"
    f" SELECT {ID}, 'usual', '{{}}', 'default', 'site', 'phase ' || i % 3, i % 3"
    " FROM generate_series(1, $1::int) AS i"
)
ERROR = """json_build_object('type', 'HTTPStatusError', 'message', 'answer ' || i % 7, 'attempt', 1)"""

# A system at work: twenty queues, fifty tenants, two days of figures and depths, an audit and errors.
WORKERS = (
    "INSERT INTO windlass.workers (id, name, alive_until, concurrency, types)"
    " SELECT md5('worker' || i)::uuid, 'host:' || i, now() + interval '1 day', 50, '{usual}'"
    " FROM generate_series(1, 20) AS i"
)
QUEUED = (
    "INSERT INTO windlass.jobs (id, type, input, queue, phase, tenant, status, token, worker, error, fingerprint,"
    f" error_at, reason, run_at, key) SELECT {ID}, 'type ' || i % 30, json_build_object('to', i), 'queue ' || i % 20,"
    " 'queue ' || i % 20, 'tenant ' || i % 50, status,"
    " CASE status WHEN 'running' THEN gen_random_uuid() END,"
    " CASE status WHEN 'running' THEN md5('worker' || i % 20 + 1)::uuid END,"
    f" CASE WHEN status IN ('failed', 'dead') THEN {ERROR} END,"
    " CASE WHEN status IN ('failed', 'dead') THEN 'aaaaaaaaaaa' || i % 7 END,"
    " CASE WHEN status IN ('failed', 'dead') THEN now() - i * interval '10 milliseconds' END,"
    " CASE WHEN status = 'dead' THEN 'exhausted' END, now() - interval '1 hour' + i * interval '6 milliseconds',"
    " CASE WHEN i % 1000 = 0 THEN 'order-' || i END"
    " FROM (SELECT i, CASE WHEN i <= $1::int * 0.01 THEN 'dead' WHEN i <= $1::int * 0.02 THEN 'waiting'"
    " WHEN i % 50 = 0 THEN 'failed' WHEN i % 1000 = 1 THEN 'running' ELSE 'queued' END AS status"
    " FROM generate_series(1, $1::int) AS i) AS made"
)
ENDED = (
    "INSERT INTO windlass.history (id, type, input, status, finished_at, queue, phase, tenant)"
    f" SELECT {ID}, 'type ' || abs(i % 30), '{{}}', CASE WHEN i % 500 = 0 THEN 'cancelled' ELSE 'succeeded' END,"
    " now() + i * interval '100 milliseconds', 'queue ' || abs(i % 20), 'queue ' || abs(i % 20),"
    " 'tenant ' || abs(i % 50) FROM (SELECT i - 2 * $1::int AS i FROM generate_series(1, $1::int) AS i) AS made"
)
FIGURES = (
    "INSERT INTO windlass.figures (at, worker, queue, phase, succeeded, failed, run_seconds, wait_seconds, runs, waits)"
    " SELECT at, '00000000-0000-0000-0000-000000000000', 'queue ' || q, 'queue ' || q, 10, 1, 5, 9, counts, counts"
    " FROM (SELECT to_timestamp(floor(extract(epoch FROM now()) / 10) * 10) - s * interval '10 seconds' AS at"
    " FROM generate_series(0, 270) AS s UNION ALL"
    " SELECT to_timestamp(floor(extract(epoch FROM now()) / 60) * 60) - s * interval '1 minute'"
    " FROM generate_series(46, 1440) AS s UNION ALL"
    " SELECT to_timestamp(floor(extract(epoch FROM now()) / 600) * 600) - s * interval '10 minutes'"
    " FROM generate_series(145, 1440) AS s) AS time, generate_series(0, 19) AS q,"
    " LATERAL (SELECT windlass.histogram(ARRAY[0.1, 0.2, 0.5]::float8[]) AS counts) AS histogram"
    " ON CONFLICT DO NOTHING"
)
DEPTHS = (
    "INSERT INTO windlass.depths SELECT to_timestamp(floor(extract(epoch FROM now()) / 10) * 10) - s * interval '10 s',"
    " 'queue ' || q, 10, 1, 1, 0, 0, 3.5 FROM generate_series(0, 17280) AS s, generate_series(0, 19) AS q"
)
AUDIT = (
    "INSERT INTO windlass.audit (at, action, actor, job, type, queue, tenant, reason)"
    " SELECT now() - i * interval '100 milliseconds',"
    " CASE i % 100 WHEN 0 THEN 'JOB_EXHAUSTED_RETRIES' ELSE 'JOB_SUCCEEDED' END,"
    f" CASE WHEN i % 10000 = 0 THEN 'ann' END, {ID}, 'usual', 'queue ' || i % 20, 'tenant ' || i % 50, NULL"
    " FROM generate_series(1, $1::int) AS i"
)
COUNTERS = (
    "INSERT INTO windlass.limits (name, most) VALUES ('domain', 2)",
    "INSERT INTO windlass.limit_counters (key, name, most, used)"
    " SELECT 'domain:' || i, 'domain', 2, 0 FROM generate_series(1, 20000) AS i",
)

SHAPES: dict[str, tuple[str, ...]] = {
    "a system at work": (WORKERS, QUEUED, ENDED, FIGURES, DEPTHS, AUDIT, *COUNTERS),
    "queued in one queue": (JOBS.format(**PLAIN),),
    "queued in 100 queues": (JOBS.format(**{**PLAIN, "queue": "'queue ' || i % 100"}),),
    "queued by 1,000 tenants": (JOBS.format(**{**PLAIN, "tenant": "'tenant ' || i % 1000"}),),
    "failed": (JOBS.format(**{**PLAIN, "status": "failed"}),),
    "waiting": (JOBS.format(**{**PLAIN, "status": "waiting"}),),
    "dead": (JOBS.format(**{**PLAIN, "status": "dead"}),),
    "dead of 1,000 tenants in 10 queues": (
        JOBS.format(**{**PLAIN, "status": "dead", "queue": "'queue ' || i % 10", "tenant": "'tenant ' || i % 1000"}),
    ),
    "parked on one key": (
        "INSERT INTO windlass.limit_counters (key, name, most, used) SELECT 'domain:a', 'domain', 2, 2 + 0 * $1::int",
        JOBS.format(**{**PLAIN, "limits": "ARRAY['domain:a']", "parked": "'domain:a'"}),
    ),
    "queued in three phases": (PIPELINE,),
    "in the history": (HISTORY,),
}

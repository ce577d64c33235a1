"""Why a job does not start: the list, the report and the program's calls give one reason, on both stores."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from windlass import Windlass
from windlass.model.admission import Rule
from windlass.model.flow import Flow
from windlass.model.job import Edge, Wait
from windlass.model.rows import WaitKind, WaitReason
from windlass.model.state import State, Verb

from .cli_store import CliStore

KEY = "domain:example.org"


# Given: each makes one job that does not start, and returns its id


def behind_a_gate(cli_store: CliStore) -> UUID:
    cli_store.register_worker()
    cli_store.run("gates", "pause", "--queue", "mail", "--reason", "the server moves", WINDLASS_ACTOR="ann")
    return cli_store.enqueue(queue="mail")[0]


def behind_the_gate_of_everything(cli_store: CliStore) -> UUID:
    cli_store.register_worker()
    cli_store.run("gates", "pause", "--all", "--claimed", "finish", WINDLASS_ACTOR="ann")
    return cli_store.enqueue(queue="mail")[0]


def with_an_empty_budget(cli_store: CliStore) -> UUID:
    cli_store.register_worker()
    cli_store.run("budgets", "set", "--tenant", "acme co", "0", "--per", "day")
    return cli_store.enqueue(tenant="acme co")[0]


def with_a_spent_budget(cli_store: CliStore) -> UUID:
    cli_store.run("budgets", "set", "--queue", "mail", "5", "--per", "month")
    worker = cli_store.register_worker()
    cli_store.finish_job(Verb.SUCCEED, worker, queue="mail", cost_cents=9, charged=True)
    return cli_store.enqueue(queue="mail")[0]


def at_a_full_limit(cli_store: CliStore) -> UUID:
    """The job is not parked: no claim has tried it since the limit is full."""
    cli_store.call(lambda store: store.declare([Rule(name="domain", most=2)]))
    cli_store.enqueue(2, limits=(KEY,))
    cli_store.claim_jobs()
    return cli_store.enqueue(limits=(KEY,))[0]


def at_a_rate(cli_store: CliStore) -> UUID:
    cli_store.call(lambda store: store.declare([Rule(name="api", period=6_000.0, burst=1)]))
    cli_store.enqueue(limits=("api",))
    cli_store.claim_jobs()
    return cli_store.enqueue(limits=("api",))[0]


def at_a_hold(cli_store: CliStore) -> UUID:
    cli_store.register_worker()
    cli_store.call(lambda store: store.declare([Rule(name="api", period=1.0, burst=1)]))
    cli_store.run("limits", "hold", "api", "10h")
    return cli_store.enqueue(limits=("api",))[0]


def without_a_worker(cli_store: CliStore) -> UUID:
    cli_store.register_worker(queues=("other",))
    return cli_store.enqueue(queue="mail")[0]


def without_a_live_worker(cli_store: CliStore) -> UUID:
    cli_store.register_worker(lease=0.0)
    return cli_store.enqueue(queue="mail")[0]


def of_an_unknown_type(cli_store: CliStore) -> UUID:
    cli_store.register_worker(queues=("mail",))
    return cli_store.enqueue(queue="mail", type="render")[0]


def with_a_delay(cli_store: CliStore) -> UUID:
    return cli_store.enqueue(delay=36_000.0)[0]


def after_a_failure(cli_store: CliStore) -> UUID:
    return cli_store.fail_job()


def behind_other_jobs(cli_store: CliStore) -> UUID:
    worker = cli_store.register_worker()
    cli_store.enqueue(10)
    cli_store.claim_jobs(worker)
    return cli_store.enqueue()[0]


def waiting_for_a_job(cli_store: CliStore) -> UUID:
    (other,) = cli_store.enqueue(delay=600.0)
    return cli_store.enqueue(wait=Wait(edges=(Edge(other),), need=1))[0]


def waiting_for_a_signal(cli_store: CliStore) -> UUID:
    return cli_store.finish_job(Verb.WAIT, flow=Flow(wait=Wait(signal="approved")))


def sleeping(cli_store: CliStore) -> UUID:
    return cli_store.finish_job(Verb.WAIT, flow=Flow(wait=Wait(delay=36_000.0)))


Case = tuple[Callable[[CliStore], UUID], WaitKind, str, str, str | None]

CASES: list[Case] = [
    # the job, the kind of reason, its name, its text, and the command
    (
        behind_a_gate,
        WaitKind.GATE,
        "queue:mail",
        "queue mail is paused by ann: the server moves",
        "windlass gates resume --queue mail",
    ),
    (
        behind_the_gate_of_everything,
        WaitKind.GATE,
        "all",
        "everything is draining, paused by ann",
        "windlass gates resume --all",
    ),
    (
        with_an_empty_budget,
        WaitKind.BUDGET,
        "tenant:acme co",
        "the budget of tenant acme co is 0: none of its jobs starts",
        "windlass budgets set --tenant 'acme co' CENTS --per …",
    ),
    (
        with_a_spent_budget,
        WaitKind.BUDGET,
        "queue:mail",
        r"the budget of queue mail is spent, opens in \d+[smhd]",
        "windlass budgets set --queue mail CENTS --per …",
    ),
    (
        at_a_full_limit,
        WaitKind.LIMIT,
        KEY,
        rf"waits for limit {KEY} \(2 of 2 in use\)",
        f"windlass limits show {KEY}",
    ),
    (
        at_a_rate,
        WaitKind.RATE,
        "api",
        r"waits for rate api \(1 per 1h40m, next token in 1h.*\)",
        "windlass limits show api",
    ),
    (
        at_a_hold,
        WaitKind.HOLD,
        "api",
        r"waits for rate api \(held back for 10h more\)",
        "windlass limits release api",
    ),
    (
        without_a_worker,
        WaitKind.WORKER,
        "queue:mail",
        "no live worker serves queue mail",
        "windlass worker app.py --queue mail",
    ),
    (
        without_a_live_worker,
        WaitKind.WORKER,
        "queue:mail",
        "no live worker serves queue mail",
        "windlass worker app.py --queue mail",
    ),
    (
        of_an_unknown_type,
        WaitKind.TYPE,
        "type:render",
        "no live worker of queue mail knows the type render",
        "windlass worker app.py --queue mail",
    ),
    (with_a_delay, WaitKind.TIME, "", "due in 10h", None),
    (after_a_failure, WaitKind.TIME, "", "again in 10m", "windlass jobs retry {id}"),
    (
        behind_other_jobs,
        WaitKind.BUSY,
        "queue:default",
        "its worker is busy: it holds 10 jobs and runs 10 at a time",
        "windlass workers",
    ),
    (
        waiting_for_a_job,
        WaitKind.JOBS,
        "",
        "waits for jobs: 0 of 1 needed, 1 to come",
        "windlass jobs show {id}",
    ),
    (
        waiting_for_a_signal,
        WaitKind.SIGNAL,
        "approved",
        "waits for the signal approved",
        "windlass jobs signal {id} approved",
    ),
    (sleeping, WaitKind.SLEEP, "", r"waits until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(in 10h\)", None),
]


@pytest.mark.parametrize(("given", "kind", "name", "text", "command"), CASES, ids=[case[0].__name__ for case in CASES])
def test_the_reason_is_the_detail_the_headline_and_the_answer_to_a_program(
    cli_store: CliStore, given: Callable[[CliStore], UUID], kind: WaitKind, name: str, text: str, command: str | None
) -> None:
    id = given(cli_store)

    detail = cli_store.run("jobs", "list", f"id:{id}").stdout.rstrip("\n").split("\t")[-1]
    report = cli_store.run("jobs", "show", str(id)).stdout.splitlines()
    with_app = Windlass(cli_store.url)
    (row,) = with_app.jobs(f"id:{id}")
    why = with_app.find(id).why()
    with_app.close()

    assert row.why is not None
    assert (row.why.kind, row.why.name) == (kind, name)
    assert re.fullmatch(text, row.why.text), row.why.text
    assert row.why.command == (None if command is None else command.format(id=id))
    assert why is not None
    assert (why.kind, why.name, why.command) == (row.why.kind, row.why.name, row.why.command)
    assert re.search(f"^{text}( · .*)?$", detail), detail
    state = f"waiting{text.removeprefix('waits')}" if row.status is State.WAITING else f"{row.status}, {text}"
    assert report[0].endswith(".")
    assert re.fullmatch(f"{row.type}  {state}", report[2]), report[2]
    shown = cli_store.run_json("jobs", "show", str(id))["why"]
    (listed,) = cli_store.run_json("jobs", "list", f"id:{id}")["jobs"]
    assert shown["kind"] == listed["why"]["kind"] == kind
    assert shown["command"] == listed["why"]["command"] == row.why.command


def test_the_time_of_a_reason_is_when_it_ends(cli_store: CliStore) -> None:
    (delayed,) = cli_store.enqueue(delay=36_000.0)
    held = at_a_hold(cli_store)
    rows = {row.id: row for row in app_jobs(cli_store)}

    assert until(rows[delayed].why) == rows[delayed].run_at
    assert abs(until(rows[held].why) - datetime.now(UTC) - timedelta(hours=10)) < timedelta(minutes=5)


def test_what_ends_first_comes_first_and_the_report_has_them_all(cli_store: CliStore) -> None:
    (id,) = cli_store.enqueue(queue="mail", delay=36_000.0)
    cli_store.run("gates", "pause", "--queue", "mail", WINDLASS_ACTOR="ann")

    output = cli_store.run("jobs", "show", str(id)).stdout

    assert output.splitlines()[:3] == [
        "Starts in 10 h at the earliest: queue mail is paused by ann.",
        "",
        "send  queued, due in 10h",
    ]
    assert "held up   queue mail is paused by ann\n" in output
    assert "held up   no live worker serves queue mail\n" in output
    assert "windlass gates resume --queue mail\nwindlass worker app.py --queue mail\n" in output
    kinds = [reason["kind"] for reason in cli_store.run_json("jobs", "show", str(id))["reasons"]]
    assert kinds == ["time", "gate", "worker"]


def test_a_job_that_may_start_runs_or_has_ended_has_no_reason(cli_store: CliStore) -> None:
    worker = cli_store.register_worker()
    cli_store.finish_job(Verb.SUCCEED, worker, output="3")
    cli_store.finish_job(Verb.BURY, worker, reason="exhausted")
    cli_store.enqueue(2)
    cli_store.claim_jobs(worker, room=1)

    assert sorted((row.status.value, row.why) for row in app_jobs(cli_store)) == [
        ("dead", None),
        ("queued", None),
        ("running", None),
        ("succeeded", None),
    ]


def test_a_page_reads_what_keeps_its_jobs_once(cli_store: CliStore) -> None:
    """As many reads for a thousand jobs as for two, and none where no job of the page could start."""
    cli_store.call(lambda store: store.declare([Rule(name="domain", most=1)]))
    cli_store.enqueue(100, limits=(KEY,))
    cli_store.claim_jobs()
    running = reads_of(cli_store, "state:running")
    few, many = reads_of(cli_store, "state:queued", page=2), reads_of(cli_store, "state:queued", page=99)

    assert running == ["search"]
    assert few == many == ["search", "now", "gates", "budgets", "workers", "limits"]


def reads_of(cli_store: CliStore, filter: str, page: int = 50) -> list[str]:
    """The reads of the store for one page."""
    from windlass.methods.reads import read_jobs
    from windlass.model.filter import parse

    class Counted:
        def __init__(self, store: Any) -> None:
            self.store, self.calls = store, list[str]()

        def __getattr__(self, name: str) -> Any:
            self.calls.append(name)
            return getattr(self.store, name)

    async def read(store: Any) -> list[str]:
        counted: Any = Counted(store)
        rows = await read_jobs(counted, parse(filter), page, None, lambda job: None)
        assert rows
        calls: list[str] = counted.calls
        return calls

    return cli_store.call(read)


def app_jobs(cli_store: CliStore, filter: str = "") -> list[Any]:
    app = Windlass(cli_store.url)
    try:
        return [*app.jobs(filter)]
    finally:
        app.close()


def until(why: WaitReason | None) -> datetime:
    assert why is not None
    assert why.until is not None
    return why.until

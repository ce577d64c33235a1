"""`windlass phases` and `windlass workers --processors`."""

from __future__ import annotations

from uuid import UUID

from windlass.model.processors import PoolReport, ProcessorState, UsedProcessor, encode_pools
from windlass.model.state import Verb
from windlass.store.protocol import Store

from .cli_store import LEASE, CliStore


def report(cli_store: CliStore, worker: UUID, *pools: PoolReport, lease: float = LEASE) -> None:
    """As the worker's beat does."""

    async def beat(store: Store) -> None:
        heartbeat = store.heartbeat()
        await heartbeat.beat(worker, lease, 0, encode_pools(pools))
        await heartbeat.close()

    cli_store.call(beat)


def busy_pool(job: UUID) -> PoolReport:
    used = (
        UsedProcessor(2, ProcessorState.BUSY, 125.0, job, "send"),
        UsedProcessor(3, ProcessorState.ERROR, 5.0, job, "send"),
    )
    return PoolReport(phase="ask", idle=1, busy=1, error=1, waiting=4, used=used)


def test_each_processor_is_shown_with_its_state_and_job(cli_store: CliStore) -> None:
    worker = cli_store.register_worker(name="ship:1")
    (job,) = cli_store.enqueue()
    report(cli_store, worker, busy_pool(job))
    cli_store.register_worker(name="ship:2", lease=0.0)  # silent: what it did is over

    lines = [line.split("\t") for line in cli_store.run("workers", "--processors").stdout.splitlines()]

    assert [(name, processor, state, type, id) for name, processor, state, _, type, id in lines] == [
        ("ship:1", "ask-processor-1", "idle", "", ""),
        ("ship:1", "ask-processor-2", "busy", "send", str(job)),
        ("ship:1", "ask-processor-3", "error", "send", str(job)),
    ]
    assert [bool(since) for _, _, _, since, _, _ in lines] == [False, True, True]


def test_a_document_has_the_processors_of_a_worker(cli_store: CliStore) -> None:
    worker = cli_store.register_worker(name="ship:1")
    (job,) = cli_store.enqueue()
    report(cli_store, worker, busy_pool(job), PoolReport(phase="mail", idle=300))

    (row,) = cli_store.run_json("workers")["workers"]

    assert [row[name] for name in ("in_memory", "unlisted", "version")] == [{"ask": 4}, 303 - 200, None]
    assert row["pools"][0] == {"phase": "ask", "idle": 1, "busy": 1, "error": 1, "in_memory": 4}
    second = row["processors"][1]
    assert second.pop("since") < row["reported_at"]
    assert second == {
        "name": "ask-processor-2", "phase": "ask", "state": "busy", "job": str(job), "type": "send",
    }  # fmt: skip


def test_processors_that_are_left_out_are_counted(file_cli_store: CliStore) -> None:
    worker = file_cli_store.register_worker(name="ship:1")
    nothing = file_cli_store.run("workers", "--processors")
    report(file_cli_store, worker, PoolReport(phase="mail", idle=300))

    result = file_cli_store.run("workers", "--processors")

    assert nothing.stderr.startswith("no live worker has reported its processors yet")
    assert len(result.stdout.splitlines()) == 200
    assert result.stderr == "100 processors more of ship:1\n"


def test_each_phase_is_shown_with_its_jobs_processors_and_figures(cli_store: CliStore) -> None:
    worker = cli_store.register_worker(name="ship:1")
    cli_store.finish_job(Verb.SUCCEED, worker, queue="mail")
    cli_store.fail_job(worker=worker, queue="mail", verb=Verb.BURY)
    (job, *_) = cli_store.enqueue(3, pipeline="site", phase="ask", phase_rank=1)
    report(cli_store, worker, busy_pool(job))
    silent = cli_store.register_worker(name="ship:2")
    report(cli_store, silent, busy_pool(job), lease=0.0)  # what it did is over

    phase, queue = cli_store.run_json("phases", "--since", "20m")["phases"]

    assert {name: phase[name] for name in ("pipeline", "phase", "due", "in_memory", "idle", "busy", "error")} == {
        "pipeline": "site", "phase": "ask", "due": 3, "in_memory": 4, "idle": 1, "busy": 1, "error": 1,
    }  # fmt: skip
    assert (phase["success_rate"], phase["run_p95"]) == (None, None)
    assert {name: queue[name] for name in ("pipeline", "phase", "due", "succeeded", "dead", "per_minute")} == {
        "pipeline": None, "phase": "mail", "due": 0, "succeeded": 1, "dead": 1, "per_minute": 0.1,
    }  # fmt: skip
    assert (queue["error_rate"], queue["failure_rate"], queue["run_p50"]) == (0.5, 0.5, 2.0)
    first, second = cli_store.run("phases").stdout.splitlines()
    assert first == "site\task\t3\t4\t1/3\t1\t0.000\t\t\t\t0\t0"
    assert second.startswith("\tmail\t0\t0\t0/0\t0\t0.200\t2\t2\t")
    assert second.endswith("\t0\t1")


def test_a_store_without_phases_says_so(file_cli_store: CliStore) -> None:
    assert file_cli_store.run("phases").stderr.startswith("no phase has a job, a figure or a live worker in ")
    assert file_cli_store.run_json("phases") == {"phases": []}
    assert file_cli_store.run("phases", "--since", "soon").exit_code == 2

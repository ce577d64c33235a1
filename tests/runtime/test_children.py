"""A process of its own: what happens in it stays in it, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from windlass.config import Settings
from windlass.model.outcome import Ending
from windlass.runtime.processes import memory
from windlass.runtime.processes import process_pool as pool
from windlass.runtime.processes.process_pool import ProcessPool

from .children_rig import StandIn, ended, exists, run, value
from .programs import handlers


@pytest.fixture
async def children() -> AsyncIterator[ProcessPool]:
    children = ProcessPool(Settings(), program=None)
    yield children
    await asyncio.wait_for(children.close(), 20)


# What a handler says comes back


async def test_a_plain_handler_runs_in_another_process_and_returns(children: ProcessPool) -> None:
    assert value(await run(children, handlers.where)) != os.getpid()


async def test_a_coroutine_runs_there_too(children: ProcessPool) -> None:
    text, pid = value(await run(children, handlers.where_async, "ça va"))

    assert text == "ça va"
    assert pid != os.getpid()


async def test_the_context_tells_of_the_same_job(children: ProcessPool) -> None:
    attempt = StandIn(handlers.told)

    told = value(await children.run(attempt))

    assert told == [str(attempt.job.id), attempt.job.fence, True, True]


async def test_an_exception_arrives_with_its_traceback(children: ProcessPool) -> None:
    outcome = await run(children, handlers.breaks, "badly")

    assert (outcome.ending, outcome.type, outcome.permanent) == (Ending.RAISED, "RuntimeError", None)
    assert outcome.message is not None
    assert outcome.message.startswith("badly at")
    assert "_deep_inside" in (outcome.traceback or "")


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("permanent", {"ending": Ending.RAISED, "type": "KeyError", "permanent": True}),
        ("retry", {"ending": Ending.RETRY, "delay": 7.0}),
        ("snooze", {"ending": Ending.SNOOZED, "delay": 9.0}),
        ("dead", {"ending": Ending.DEAD, "message": "no hope"}),
        ("exit", {"ending": Ending.RAISED, "type": "SystemExit"}),
    ],
)
async def test_a_handlers_words_keep_their_meaning(
    children: ProcessPool, how: str, expected: dict[str, object]
) -> None:
    outcome = await run(children, handlers.breaks, how)

    assert {name: getattr(outcome, name) for name in expected} == expected


async def test_sys_exit_in_a_coroutine_ends_the_attempt_and_not_the_child(children: ProcessPool) -> None:
    before = value(await run(children, handlers.where))

    outcome = await run(children, handlers.exits_async)

    assert (outcome.ending, outcome.type) == (Ending.RAISED, "SystemExit")
    assert value(await run(children, handlers.where)) == before


async def test_progress_and_log_reach_the_workers_context(children: ProcessPool) -> None:
    attempt = StandIn(handlers.chatters, 20_000)

    await children.run(attempt)

    assert attempt.context is not None
    assert (attempt.context.processed, attempt.context.total) == (20_000, 20_000)
    assert attempt.context.log.lines == ["INFO begins with 20000", "WARNING 100 % done"]
    assert attempt.words < 20  # a few per second, and the last


async def test_what_a_handler_prints_is_printed_by_the_worker(
    children: ProcessPool, capfd: pytest.CaptureFixture[str]
) -> None:
    await run(children, handlers.chatters, 1)

    assert "printed by a handler" in capfd.readouterr().out


async def test_a_thread_that_outlives_its_attempt_is_not_heard_in_the_next_one(children: ProcessPool) -> None:
    talker = value(await run(children, handlers.gossips))
    attempt = StandIn(handlers.told)

    await children.run(attempt)

    assert value(await run(children, handlers.where)) == talker
    assert attempt.context is not None
    assert attempt.context.log.lines == []
    assert attempt.words == 0


# Death


@pytest.mark.parametrize(
    ("kind", "args", "how"),
    [
        (handlers.segfault, (), "SIGSEGV"),
        (handlers.leaves, (3,), "exit code 3"),
        (handlers.leaves, (0,), "exit code 0"),
    ],
)
async def test_a_death_is_the_crash_of_one_attempt(children: ProcessPool, kind: Any, args: Any, how: str) -> None:
    neighbour = StandIn(handlers.waits)
    beside = asyncio.create_task(children.run(neighbour))
    await neighbour.pid()

    outcome = await run(children, kind, *args)

    assert (outcome.ending, outcome.type) == (Ending.CRASHED, "ProcessDied")
    assert outcome.message == f"the process of this attempt died: {how}"
    children.ask_to_stop(neighbour.job.id)
    assert value(await beside) == "heeded"
    assert value(await run(children, handlers.where)) != os.getpid()


async def test_a_child_that_is_killed_is_a_crash(children: ProcessPool) -> None:
    attempt = StandIn(handlers.computes)
    running = asyncio.create_task(children.run(attempt))

    os.kill(await attempt.pid(), signal.SIGKILL)

    outcome = await running
    assert outcome.ending is Ending.CRASHED
    assert outcome.message == "the process of this attempt died: SIGKILL"


async def test_a_child_that_died_while_idle_is_nobodys_crash(children: ProcessPool) -> None:
    pid = value(await run(children, handlers.where))

    os.kill(pid, signal.SIGKILL)

    assert value(await run(children, handlers.where)) != pid


async def test_a_death_is_noticed_although_an_heir_holds_the_socket(children: ProcessPool) -> None:
    attempt = StandIn(handlers.forks_and_dies)

    outcome = await asyncio.wait_for(children.run(attempt), 20)

    os.kill(await attempt.pid(), signal.SIGKILL)
    assert outcome.message == "the process of this attempt died: exit code 5"


@pytest.mark.parametrize(
    ("length", "body"),
    [(2**31, ""), (3, "{]}"), (15, '{"kind":"Fork"}'), (2, "{}")],
    ids=["too large", "no JSON", "not a child's word", "no word"],
)
async def test_a_child_that_sends_no_message_is_killed(children: ProcessPool, length: int, body: str) -> None:
    outcome = await run(children, handlers.babbles, length, body)

    assert outcome.ending is Ending.CRASHED
    assert "killed, because" in (outcome.message or "")
    assert value(await run(children, handlers.where)) != os.getpid()


async def test_a_child_that_hangs_up_does_not_go_on(children: ProcessPool) -> None:
    attempt = StandIn(handlers.hangs_up)

    outcome = await asyncio.wait_for(children.run(attempt), 20)

    assert outcome.ending is Ending.CRASHED
    assert not exists(await attempt.pid())


async def test_the_forkservers_death_costs_the_running_attempts_and_no_more(children: ProcessPool) -> None:
    attempt = StandIn(handlers.computes)
    running = asyncio.create_task(children.run(attempt))
    child = await attempt.pid()
    assert children._forkserver is not None

    os.kill(children._forkserver.pid, signal.SIGKILL)

    assert (await running).ending is Ending.CRASHED
    await ended(child)
    assert value(await run(children, handlers.where)) != child


async def test_ctrl_c_is_for_the_worker_to_decide(children: ProcessPool) -> None:
    attempt = StandIn(handlers.waits)
    running = asyncio.create_task(children.run(attempt))
    pid = await attempt.pid()
    assert children._forkserver is not None

    for process in (pid, children._forkserver.pid):
        os.kill(process, signal.SIGINT)
    children.ask_to_stop(attempt.job.id)

    assert value(await running) == "heeded"


# Limits


async def test_above_its_memory_limit_an_attempt_fails(children: ProcessPool) -> None:
    attempt = StandIn(handlers.grows, 300, wait=True)

    outcome = await asyncio.wait_for(children.run(attempt), 30)

    assert (outcome.ending, outcome.type) == (Ending.RAISED, "MemoryLimit")
    assert "more than its limit of 200 MiB" in (outcome.message or "")
    assert not exists(await attempt.pid())


async def test_a_worker_that_cannot_see_memory_says_so_once(
    children: ProcessPool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory, "PROC", tmp_path)

    for _ in range(2):
        value(await run(children, handlers.grows, 1, wait=False))

    assert [record.message for record in caplog.records if "memory limits" in record.message] == [
        f"memory limits are not watched here: {tmp_path} has no figures of processes"
    ]


@pytest.mark.parametrize("kind", [handlers.waits, handlers.computes, handlers.hogs])
async def test_a_cancelled_attempt_is_killed_and_reaped(children: ProcessPool, kind: Any) -> None:
    attempt = StandIn(kind)
    running = asyncio.create_task(children.run(attempt))
    pid = await attempt.pid()

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert not exists(pid)


async def test_an_attempt_cancelled_before_its_child_is_there_leaves_none(children: ProcessPool) -> None:
    running = asyncio.create_task(children.run(StandIn(handlers.where)))
    await asyncio.sleep(0)

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert value(await run(children, handlers.where)) != os.getpid()


@pytest.mark.parametrize("kind", [handlers.waits, handlers.hogs])
async def test_a_handler_sees_that_it_was_asked_to_stop(children: ProcessPool, kind: Any) -> None:
    attempt = StandIn(kind)
    running = asyncio.create_task(children.run(attempt))
    await attempt.pid()

    children.ask_to_stop(attempt.job.id)

    assert value(await running) == "heeded"


# Reuse


async def test_a_child_is_used_again_and_recycled(children: ProcessPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "RECYCLE_AFTER", 2)

    first, second, third = [value(await run(children, handlers.where)) for _ in range(3)]

    assert first == second != third
    await ended(first)


async def test_a_child_that_has_grown_is_recycled(children: ProcessPool) -> None:
    small = value(await run(children, handlers.grows, 1, wait=False))
    grown = value(await run(children, handlers.grows, 110, wait=False))

    assert small == grown
    assert value(await run(children, handlers.where)) != grown
    await ended(grown)


async def test_of_many_idle_children_only_a_few_are_kept(
    children: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE_KEPT", 1)
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.0)
    attempts = [StandIn(handlers.waits) for _ in range(3)]
    running = [asyncio.create_task(children.run(attempt)) for attempt in attempts]
    pids = {await attempt.pid() for attempt in attempts}

    for attempt, task in zip(attempts, running, strict=True):
        children.ask_to_stop(attempt.job.id)
        await task
    kept = value(await run(children, handlers.where))

    assert kept in pids
    for pid in pids - {kept}:
        await ended(pid)


async def test_fifty_at_once(children: ProcessPool) -> None:
    outcomes = await asyncio.gather(*(run(children, handlers.where_async, str(n)) for n in range(50)))

    told = [value(outcome) for outcome in outcomes]
    assert [text for text, _ in told] == [str(n) for n in range(50)]
    assert len({pid for _, pid in told}) > 1


# The end


async def test_close_leaves_nothing_behind() -> None:
    children = ProcessPool(Settings(), program=None)
    idle = value(await run(children, handlers.where))
    busy = StandIn(handlers.computes)
    running = asyncio.create_task(children.run(busy))
    pids = [idle, await busy.pid()]
    assert children._forkserver is not None
    pids.append(children._forkserver.pid)

    await asyncio.wait_for(children.close(), 20)

    assert [pid for pid in pids if exists(pid)] == []
    assert (await running).ending is Ending.CRASHED


async def test_a_worker_killed_dead_takes_its_children_with_it() -> None:
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runtime.programs.lonely_worker"),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert worker.stdout is not None
    pids = [int(pid) for pid in (await worker.stdout.readline()).split()]

    worker.kill()

    assert len(pids) == 2
    await worker.wait()
    for pid in pids:
        await ended(pid)

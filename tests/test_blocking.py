"""One thread, one loop: blocking calls wait for it, other loops await it, a fork starts it anew."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import pytest

from windlass.app import Windlass
from windlass.blocking import Portal
from windlass.declare.jobtype import JobType
from windlass.errors import BlockingCall
from windlass.handles.batch import Batch
from windlass.handles.graph import Graph
from windlass.handles.job import JobHandle
from windlass.handles.schedule import Schedule
from windlass.methods.admin import Operators

if TYPE_CHECKING:
    from collections.abc import Iterator

WORD: contextvars.ContextVar[str] = contextvars.ContextVar("word")


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.close()


async def where() -> tuple[int, int]:
    return threading.get_ident(), id(asyncio.get_running_loop())


def test_every_call_runs_on_one_loop_in_one_other_thread(portal: Portal) -> None:
    first = portal.run(where, async_name="job.aenqueue(…)")
    second = portal.run(where, async_name="job.aenqueue(…)")

    assert first == second
    assert first[0] != threading.get_ident()


def test_results_errors_and_context_pass_through(portal: Portal) -> None:
    async def fail() -> None:
        raise KeyError(WORD.get())

    WORD.set("seen")

    with pytest.raises(KeyError, match="seen"):
        portal.run(fail, async_name="job.aenqueue(…)")


async def test_a_blocking_call_on_a_loop_is_refused_and_names_the_awaited_form(portal: Portal) -> None:
    with pytest.raises(BlockingCall) as caught:
        portal.run(where, async_name="job.aenqueue(…)")

    assert str(caught.value) == "enqueue() would block the running event loop; use: await job.aenqueue(…)"


async def test_other_loops_await_the_same_loop_and_the_loop_itself_may_too(portal: Portal) -> None:
    async def from_inside() -> tuple[int, int]:
        return await portal.arun(where)

    outer = await portal.arun(where)

    assert await portal.arun(from_inside) == outer
    assert outer[1] != id(asyncio.get_running_loop())


async def test_a_cancelled_caller_cancels_what_it_awaits(portal: Portal) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    task = asyncio.create_task(portal.arun(wait))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(cancelled.wait, 10)


def test_ctrl_c_while_waiting_cancels_what_was_waited_for(portal: Portal) -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        main = threading.main_thread().ident or 0
        # Until it waits for this:
        while sys._current_frames()[main].f_code.co_filename != threading.__file__:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        portal.run(wait, async_name="job.aenqueue(…)")

    assert cancelled.wait(10)


def test_closing_cancels_what_is_under_way_and_the_next_call_starts_anew(portal: Portal) -> None:
    started = threading.Event()
    seen: list[type[BaseException]] = []

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            portal.run(wait, async_name="job.aenqueue(…)")
        except CancelledError as error:
            seen.append(type(error))

    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    before = portal.run(loop, async_name="job.aenqueue(…)")
    caller = threading.Thread(target=call)
    caller.start()
    assert started.wait(10)
    portal.close()
    caller.join(10)

    assert seen == [CancelledError]
    assert portal.run(loop, async_name="job.aenqueue(…)") is not before


def test_a_child_process_starts_its_own_and_leaves_the_parent_s_alone() -> None:
    script = textwrap.dedent(
        """
        import asyncio, os, threading
        from windlass.blocking import Portal

        portal = Portal()

        async def pid():
            await asyncio.sleep(0)
            return os.getpid(), threading.get_ident()

        def call():
            return portal.run(pid, async_name="job.aenqueue(…)")

        parent = call()
        portal._lock.acquire()  # as if another thread were in the middle of a call
        child = os.fork()
        if child == 0:
            first, second = call(), call()
            portal.close()
            os._exit(0 if first == second and first[0] == os.getpid() else 1)
        portal._lock.release()
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        assert call() == parent
        print("both")
        """
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)

    assert done.stdout == "both\n", done.stderr


# Methods in two forms


REPORTING = {"bulk"}  # the form with an `a` is an iterator of reports, so that it has another result and docstring
PAIRS = [
    (kind, name)
    for kind in (Windlass, Operators, JobType, JobHandle, Batch, Graph, Schedule)
    for name in dir(kind)
    if not name.startswith("_") and hasattr(kind, f"a{name}") and name not in REPORTING
]


def test_the_pairs_of_methods_are_found() -> None:
    assert {(JobHandle, "status"), (Windlass, "batch"), (JobType, "enqueue"), (Schedule, "fire")} < set(PAIRS)


@pytest.mark.parametrize(("kind", "name"), PAIRS)
def test_both_forms_of_a_method_have_one_signature_and_one_docstring(kind: type, name: str) -> None:
    plain, awaited = getattr(kind, name), getattr(kind, f"a{name}")

    assert plain.__doc__ == awaited.__doc__ is not None
    assert inspect.signature(plain) == inspect.signature(awaited)
    assert "Enqueue[" not in str(inspect.signature(plain))
    assert (plain.__name__, awaited.__name__) == (name, f"a{name}")
    for form, is_awaited in ((plain, False), (awaited, True)):
        # FastAPI decides by the unwrapped function whether it has to await a route or a dependency.
        assert inspect.iscoroutinefunction(form) is inspect.iscoroutinefunction(inspect.unwrap(form)) is is_awaited

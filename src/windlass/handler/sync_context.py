"""The context of a plain function: the calls of `Context` that take time, blocking, on the handler's own thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Literal, ParamSpec, TypeVar, overload
from uuid import UUID

from windlass.clock import Duration, seconds, seconds_from_now
from windlass.declare.registry import Contexts
from windlass.errors import BlockingCall
from windlass.handler.children import Child
from windlass.handler.context import BaseContext, Context, Need, wait_limit
from windlass.handler.steps import refuse_inside_a_step
from windlass.handles.job import JobHandle
from windlass.policy.limit import Value
from windlass.words import explain_arguments

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SyncContext(BaseContext):
    """The context of a plain function: `def send(ctx: SyncContext, to: str) -> None`.

    It has the names of `Context`, and each of them blocks the handler's thread. A coroutine has a `Context` instead.
    """

    # Calling out

    def acquire(self, name: str, *, key: Value | None = None) -> None:
        """Wait until this run may call once at the rate `name`, which all workers share: `ctx.acquire("wiki")`.

        A wait of more than 5 s is a snooze: the handler starts from the top after it, and no attempt is used up.
        """
        self._check_thread("acquire")
        self._run(self._tokens.acquire(name, key))

    def hold_back(self, name: str, duration: Duration, *, key: Value | None = None) -> None:
        """Let no worker call at this rate for this long: `ctx.hold_back("wiki", retry_after)`.

        A day is the longest; `windlass limits release` ends it before.
        """
        self._check_thread("hold_back")
        self._run(self._tokens.hold_back(name, seconds_from_now(duration, what="ctx.hold_back()"), key))

    # Waiting for jobs

    @overload
    def wait(
        self,
        jobs: Iterable[Child[R] | JobHandle[R]],
        *,
        need: Literal["ended"],
        timeout: Duration | None = None,
    ) -> list[Child[R]]: ...
    @overload
    def wait(
        self,
        jobs: Iterable[Child[object] | JobHandle[object] | UUID | str],
        *,
        need: Literal["ended"],
        timeout: Duration | None = None,
    ) -> list[Child[object]]: ...
    @overload
    def wait(
        self, jobs: Iterable[Child[R] | JobHandle[R]], *, need: Need = "all", timeout: Duration | None = None
    ) -> list[R]: ...
    @overload
    def wait(
        self,
        jobs: Iterable[Child[object] | JobHandle[object] | UUID | str],
        *,
        need: Need = "all",
        timeout: Duration | None = None,
    ) -> list[object]: ...
    def wait(
        self, jobs: Iterable[object], *, need: Need | Literal["ended"] = "all", timeout: Duration | None = None
    ) -> list[Any]:
        """Wait for jobs and return their results, in the order given: `ctx.wait(children)`; see `Context.wait`.

        With `need="ended"`: wait until every job has ended, and return the jobs.
        """
        self._check("wait")
        return self._run(self._waits.wait(jobs, need, wait_limit(timeout)))

    def dependencies(self) -> dict[str, Any]:
        """The results, by name, of the jobs that this node of a graph depends on: `ctx.dependencies()["fetch"]`.

        A job without a result has None.
        """
        self._check_thread("dependencies")
        return self._run(self._children.dependencies())

    def output_of(self, phase: str) -> Any:
        """The result of any earlier phase of the job's pipeline: `page = ctx.output_of("analyse")`.

        See `Context.output_of`.
        """
        self._check_thread("output_of")
        return self._run(self._memory.read_output(phase))

    # Steps and waits

    @overload
    def step(self, name: str, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @explain_arguments("ctx.step")
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run `fn` on this thread, once, and remember its result: `ctx.step("charge", charge, order)`.

        See `Context.step` for what happens once and what at least once.
        """
        self._check("step")
        return self._steps.run_here(name, fn, args, kwargs, self._run)

    @explain_arguments("ctx.sleep")
    def sleep(self, name: str, duration: Duration) -> None:
        """Wait without holding a processor: `ctx.sleep("nap", "3d")`. The time counts from the first run."""
        self._check("sleep")
        self._run(self._waits.sleep(name, seconds(duration, what="ctx.sleep()")))

    def wait_signal(self, name: str, *, timeout: Duration | None = None) -> Any:
        """Wait for `job.signal(name, value)` and return the value: `ctx.wait_signal("approved", timeout="3d")`.

        A signal that was sent before the wait counts, too. Raises SignalTimeout when `timeout` has passed since the
        first run that waited here.
        """
        self._check("wait_signal")
        return self._run(self._waits.signal(name, wait_limit(timeout)))

    def _check(self, method: str) -> None:
        refuse_inside_a_step(self._memory, method)
        self._check_thread(method)

    def _check_thread(self, method: str) -> None:
        """Refuse the call on a running loop, which would stand still."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise BlockingCall(
            f"ctx.{method}() of a SyncContext would block the running event loop; make the handler a coroutine: "
            f"async def …(ctx: Context, …), and write: await ctx.{method}(…)"
        )

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


CONTEXTS = Contexts(awaited=Context, blocking=SyncContext)

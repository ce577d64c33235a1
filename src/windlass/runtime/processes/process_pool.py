"""Isolation by child processes, for handlers that crash, leak, hold the GIL or must be killable.

The processor gives it each attempt of a type with isolation="process", and each attempt of a suspect.
`child_main.py` runs the attempt in the child and returns the outcome. A dead child is the crash of its one attempt.

A forkserver imports the program once; children are forked from it, reused, and recycled before they grow old. A child
runs one attempt at a time, so that its death names the culprit. The death of one busy worker makes hundreds of
suspects; discovery claims a few at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from windlass.config import Settings
from windlass.declare.registry import Definition, Isolation
from windlass.model.job import Job
from windlass.model.outcome import Ending, Outcome
from windlass.runtime.processes import importing
from windlass.runtime.processes.child_process import ChildProcess, Runnable
from windlass.runtime.processes.forkserver_client import ForkserverClient
from windlass.runtime.processes.memory import rss, warn_if_unmeasured
from windlass.runtime.processes.wire import Start

RECYCLE_AFTER = 100  # jobs, before leaks and fragments add up
IDLE_KEPT = 4  # children that may wait for work for ever
IDLE_SECONDS = 30.0  # for which other idle children wait for an attempt before they end
CLOSE_SECONDS = 3.0  # for a child to end after its socket was closed, before it is killed
MOST_DEATHS = 3  # of children, before an attempt begins


class ProcessPool:
    """The child processes of one worker. Used from one event loop only."""

    def __init__(self, settings: Settings, *, program: str | None) -> None:
        self._settings = settings
        self._program = program
        self._importable: dict[str, bool] = {}
        self._forkserver: ForkserverClient | None = None
        self._alive: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []  # a stack: the child that worked last works next, and the others may end
        self._running: dict[UUID, ChildProcess] = {}
        self._background: set[asyncio.Task[Any]] = set()
        self._warned = False

    def isolation(self, job: Job, definition: Definition) -> Isolation:
        """How to execute: a suspect runs in a process of its own where that is possible."""
        if job.suspect and self.importable(definition):
            return Isolation.PROCESS
        return definition.isolation

    def importable(self, definition: Definition) -> bool:
        """Whether a child can import this handler."""
        if self._program is not None:
            return True
        known = self._importable.get(definition.type)
        if known is None:
            known = self._importable[definition.type] = importing.importable(definition)
        return known

    async def run(self, execution: Runnable, *, waited: float = 0.0) -> Outcome:
        """Run one attempt in a child, `waited` seconds after its claim. Cancelled, it kills the child."""
        if not self.importable(execution.definition):
            return Outcome(ending=Ending.RAISED, type="ProgramError", message=importing.refusal(execution.definition))
        limit = self._limit(execution.definition)
        for _ in range(MOST_DEATHS):
            child = await self._take(execution)
            if isinstance(child, Outcome):
                return child
            outcome = await self._run_in(child, execution, waited, limit)
            if outcome is not None:
                self._give_back(child, limit)
                return outcome
        return _failed(
            "ProcessError", f"{MOST_DEATHS} processes died before this attempt began; see the worker's output"
        )

    def pid_of(self, job: UUID) -> int | None:
        """The child process that runs this job; None: no child does."""
        child = self._running.get(job)
        return None if child is None else child.pid

    def ask_for_stack(self, job: UUID) -> None:
        """Log where a job's handler is, when its child answers."""
        if job in self._running:
            self._running[job].ask_for_stack()

    def ask_to_stop(self, job: UUID) -> None:
        """Report a request to stop to a job's handler: `ctx.cancelled`."""
        if job in self._running:
            self._running[job].ask_to_stop()

    async def close(self) -> None:
        """End all children and the forkserver; nothing is left behind."""
        for child in list(self._alive):
            if child in self._idle:
                self._retire(child)
            else:
                child.kill()
        while self._background:
            await asyncio.wait(self._background)
        forkserver, self._forkserver = self._forkserver, None
        if forkserver is not None:
            await forkserver.close()

    async def _take(self, execution: Runnable) -> ChildProcess | Outcome:
        """An idle child, or a new one; an outcome when the program cannot be imported."""
        while self._idle:
            child = self._idle.pop()
            if child.idle_timer is not None:
                child.idle_timer.cancel()
            if child.usable:
                return child
            self._retire(child)
        for _ in range(MOST_DEATHS):
            if self._forkserver is None or self._forkserver.dead:
                self._forkserver = self._start(execution.definition)
            forkserver = self._forkserver
            refused = await asyncio.shield(forkserver.ready)
            if refused is not None:
                return refused
            started = await forkserver.fork()
            if started is not None:
                child = ChildProcess(started, forkserver)
                self._alive.add(child)
                return child
        return _failed("ProcessError", "no child process could be made; see the worker's log")

    def _start(self, definition: Definition) -> ForkserverClient:
        modules = [] if self._program is not None else [definition.fn.__module__]
        return ForkserverClient(Start(self._program, modules, self._settings))

    async def _run_in(
        self, child: ChildProcess, execution: Runnable, waited: float, limit: int | None
    ) -> Outcome | None:
        self._running[execution.job.id] = child
        try:
            return await child.run(execution, waited=waited, limit=limit)
        except BaseException:
            child.kill()
            # A task of its own: the child is reaped also when this task is cancelled a second time.
            await asyncio.shield(self._in_background(self._reap(child, after=0.0)))
            raise
        finally:
            if self._running.get(execution.job.id) is child:
                del self._running[execution.job.id]
            if not child.usable:
                self._alive.discard(child)

    def _give_back(self, child: ChildProcess, limit: int | None) -> None:
        if not child.usable:
            return
        grown = limit is not None and (rss(child.pid) or 0) > limit / 2
        if grown or child.runs >= RECYCLE_AFTER:
            self._retire(child)
            return
        self._idle.append(child)
        child.idle_timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end_surplus, child)

    def _end_surplus(self, child: ChildProcess) -> None:
        if len(self._idle) > IDLE_KEPT and child in self._idle:
            self._retire(child)

    def _retire(self, child: ChildProcess) -> None:
        """Close its socket and wait for its end in the background."""
        if child in self._idle:
            self._idle.remove(child)
        if child.idle_timer is not None:
            child.idle_timer.cancel()
        child.end()
        self._in_background(self._reap(child, after=CLOSE_SECONDS))

    async def _reap(self, child: ChildProcess, *, after: float) -> None:
        await child.die(after=after)
        self._alive.discard(child)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def _limit(self, definition: Definition) -> int | None:
        limit = definition.memory or self._settings.memory
        if limit is not None and not self._warned:
            self._warned = True
            warn_if_unmeasured()
        return limit


def _failed(kind: str, message: str) -> Outcome:
    """An attempt that failed because there was no process for it, and not by its handler's crash."""
    return Outcome(ending=Ending.RAISED, type=kind, message=message)

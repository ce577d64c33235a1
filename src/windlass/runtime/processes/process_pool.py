"""The third way to execute: a process of its own, for handlers that crash, leak, hold the GIL or must be killable.

The processor gives it each attempt of a type with isolation="process", and each attempt of a suspect.
`child_main.py` runs the attempt in the child and returns the outcome. A dead child is the crash of its one attempt.

A forkserver imports the program once; children are forked from it, reused, and recycled before they grow old. A child
runs one attempt at a time, so that its death names the culprit. The death of one busy worker makes hundreds of
suspects: discovery claims a few at a time.
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
from windlass.runtime.processes.memory import rss, warn_if_blind
from windlass.runtime.processes.wire import Start

RECYCLE_AFTER = 100  # jobs, before leaks and fragments add up
IDLE_KEPT = 4  # children that may wait for work for ever
IDLE_SECONDS = 30.0  # the others wait so long
END_SECONDS = 3.0  # for a child that was hung up on, before it is killed
TRIES = 3  # children that may die before an attempt begins


class ProcessPool:
    """The child processes of one worker. Used from one event loop only."""

    def __init__(self, settings: Settings, *, program: str | None) -> None:
        self._settings = settings
        self._program = program
        self._importable: dict[str, bool] = {}
        self._forks: ForkserverClient | None = None
        self._alive: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []  # a stack: whoever worked last works next, and the others may go
        self._running: dict[UUID, ChildProcess] = {}
        self._chores: set[asyncio.Task[Any]] = set()
        self._warned = False

    def isolation(self, job: Job, definition: Definition) -> Isolation:
        """How to execute: a suspect is kept away from everybody else where that is possible."""
        if job.suspect and self.importable(definition):
            return Isolation.PROCESS
        return definition.isolation

    def importable(self, definition: Definition) -> bool:
        """Whether a child can get at this handler."""
        if self._program is not None:
            return True
        known = self._importable.get(definition.type)
        if known is None:
            known = self._importable[definition.type] = importing.importable(definition)
        return known

    async def run(self, attempt: Runnable, *, waited: float = 0.0) -> Outcome:
        """Run one attempt in a child, `waited` seconds after its claim. Cancelled, it kills the child."""
        if not self.importable(attempt.definition):
            return Outcome(ending=Ending.RAISED, type="ProgramError", message=importing.refusal(attempt.definition))
        limit = self._limit(attempt.definition)
        for _ in range(TRIES):
            child = await self._take(attempt)
            if isinstance(child, Outcome):
                return child
            outcome = await self._run_in(child, attempt, waited, limit)
            if outcome is not None:
                self._give_back(child, limit)
                return outcome
        return _failed("ProcessError", f"{TRIES} processes died before this attempt began; see the worker's output")

    def ask_to_stop(self, job: UUID) -> None:
        """Tell a job's handler that somebody wants it to stop: `ctx.cancelled`."""
        if job in self._running:
            self._running[job].ask_to_stop()

    async def close(self) -> None:
        """End all children and the forkserver; nothing is left behind."""
        for child in list(self._alive):
            if child in self._idle:
                self._retire(child)
            else:
                child.kill()
        while self._chores:
            await asyncio.wait(self._chores)
        forks, self._forks = self._forks, None
        if forks is not None:
            await forks.close()

    async def _take(self, attempt: Runnable) -> ChildProcess | Outcome:
        """An idle child, or a new one; an outcome when the program cannot be imported."""
        while self._idle:
            child = self._idle.pop()
            if child.idle_timer is not None:
                child.idle_timer.cancel()
            if child.usable:
                return child
            self._retire(child)
        for _ in range(TRIES):
            if self._forks is None or self._forks.dead:
                self._forks = self._start(attempt.definition)
            forks = self._forks
            refused = await asyncio.shield(forks.ready)
            if refused is not None:
                return refused
            born = await forks.fork()
            if born is not None:
                child = ChildProcess(born, forks)
                self._alive.add(child)
                return child
        return _failed("ProcessError", "no child process could be made; see the worker's log")

    def _start(self, definition: Definition) -> ForkserverClient:
        modules = [] if self._program is not None else [definition.fn.__module__]
        return ForkserverClient(Start(self._program, modules, self._settings))

    async def _run_in(self, child: ChildProcess, attempt: Runnable, waited: float, limit: int | None) -> Outcome | None:
        self._running[attempt.job.id] = child
        try:
            return await child.run(attempt, waited=waited, limit=limit)
        except BaseException:
            child.kill()
            # Its own task: the child is buried also when we are cancelled a second time.
            await asyncio.shield(self._chore(self._bury(child, after=0.0)))
            raise
        finally:
            if self._running.get(attempt.job.id) is child:
                del self._running[attempt.job.id]
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
        child.idle_timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._tire, child)

    def _tire(self, child: ChildProcess) -> None:
        if len(self._idle) > IDLE_KEPT and child in self._idle:
            self._retire(child)

    def _retire(self, child: ChildProcess) -> None:
        """Hang up and see it off, without keeping anybody waiting."""
        if child in self._idle:
            self._idle.remove(child)
        if child.idle_timer is not None:
            child.idle_timer.cancel()
        child.end()
        self._chore(self._bury(child, after=END_SECONDS))

    async def _bury(self, child: ChildProcess, *, after: float) -> None:
        await child.die(after=after)
        self._alive.discard(child)

    def _chore(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return task

    def _limit(self, definition: Definition) -> int | None:
        limit = definition.memory or self._settings.memory
        if limit is not None and not self._warned:
            self._warned = True
            warn_if_blind()
        return limit


def _failed(kind: str, message: str) -> Outcome:
    """An attempt that failed for want of a process, and not by its handler's crash."""
    return Outcome(ending=Ending.RAISED, type=kind, message=message)

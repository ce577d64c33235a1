"""One child process as its worker sees it: the worker sends it one attempt at a time and watches it until its end."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec

from windlass.declare.registry import Definition, Isolation
from windlass.handler.context import BaseContext
from windlass.model.job import Job
from windlass.model.outcome import Ending, Outcome
from windlass.runtime.duties.stacks import log_stack
from windlass.runtime.processes.channel import Channel
from windlass.runtime.processes.forkserver_client import ForkserverClient, StartedChild, spell_end
from windlass.runtime.processes.memory import MemoryWatch, mebibytes
from windlass.runtime.processes.wire import (
    LARGEST_FROM_CHILD,
    AttemptDone,
    Began,
    LogLine,
    ProgressReport,
    StackReport,
    StackRequest,
    StopRequest,
    Work,
    from_child,
)

REPORT_SECONDS = 1.0  # for the report of a death to follow the end of the child's socket
KILL_SECONDS = 5.0  # for a SIGKILL to be reported; after that the forkserver itself is stuck


class Runnable(Protocol):
    """What a child needs of `processor.Execution`."""

    @property
    def job(self) -> Job: ...

    @property
    def definition(self) -> Definition: ...

    @property
    def context(self) -> BaseContext | None: ...

    @property
    def trace(self) -> str | None: ...


class ChildProcess:
    """A child that lives until it is ended, killed or dead."""

    def __init__(self, started: StartedChild, forkserver: ForkserverClient) -> None:
        self.pid = started.pid
        self.runs = 0
        self.idle_timer: asyncio.TimerHandle | None = None
        self._forkserver = forkserver
        self._gone = started.gone
        self._channel = Channel(started.sock, on_frame=self._receive, on_end=self._ended, largest=LARGEST_FROM_CHILD)
        self._execution: Runnable | None = None
        self._began = False
        self._done: asyncio.Future[Outcome | None] | None = None
        self._problem: str | None = None
        self._gone.add_done_callback(lambda _: self._channel.drain())

    @property
    def usable(self) -> bool:
        return not self._channel.ended

    async def run(self, execution: Runnable, *, waited: float, limit: int | None) -> Outcome | None:
        """The attempt's outcome; None when the child was dead before it began."""
        self.runs += 1
        self._began = False
        self._execution = execution
        self._done = asyncio.get_running_loop().create_future()
        fn, trace = execution.definition.fn, execution.trace
        self._channel.send(
            Work(job=execution.job, module=fn.__module__, qualname=fn.__qualname__, waited=waited, trace=trace)
        )
        if self._channel.ended:
            self._done.set_result(None)
        overrun: list[int] = []

        def exceeded(used: int) -> None:
            overrun.append(used)
            self.kill()

        try:
            with MemoryWatch(self.pid, limit, exceeded=exceeded):
                outcome = await self._done
        finally:
            self._execution = self._done = None
        if outcome is not None:
            return self._without_suspicion(outcome, execution) if execution.job.suspect and self._began else outcome
        code = await self.die(after=REPORT_SECONDS)
        if overrun and limit is not None:
            return out_of_memory(overrun[0], limit)
        return self._crash(code) if self._began else None

    def ask_to_stop(self) -> None:
        """`ctx.cancelled` in the child."""
        if self._execution is not None:
            self._channel.send(StopRequest(self._execution.job.id))

    def ask_for_stack(self) -> None:
        """Log where the handler is, when the child answers."""
        self._channel.send(StackRequest())

    def end(self) -> None:
        """Close the socket: an idle child closes its store and ends."""
        self._channel.close()

    def kill(self) -> None:
        """SIGKILL; nothing in the child can refuse it."""
        if not self._gone.done():
            self._forkserver.kill(self.pid)

    async def die(self, *, after: float) -> int | None:
        """Wait for its death, kill it when it takes longer than `after` seconds, and return how it ended."""
        await asyncio.wait({self._gone}, timeout=after)
        if not self._gone.done():
            self.kill()
            await asyncio.wait({self._gone}, timeout=KILL_SECONDS)
        if not self._gone.done():
            self._forkserver.abandon()
        self._channel.close()
        return self._gone.result()

    def _receive(self, piece: bytes) -> None:
        try:
            message = from_child.decode(piece)
            match message:
                case Began():
                    self._began = True
                case AttemptDone(outcome):
                    if self._done is not None and not self._done.done():
                        self._done.set_result(outcome)
                case StackReport(frames):
                    if self._execution is not None:
                        log_stack(self._execution.job, f"the child process {self.pid}", frames)
                case LogLine() | ProgressReport():
                    self._apply(message)
        except Exception as error:  # no message of ours: the handler wrote to the socket, and the attempt is lost
            self._channel.close()
            self._ended(f"it sent something that is no message ({type(error).__name__}: {error})")

    def _apply(self, message: LogLine | ProgressReport) -> None:
        execution = self._execution
        if execution is None or execution.context is None or execution.job.id != message.job:
            return  # from a thread that outlived its attempt
        if isinstance(message, LogLine):
            execution.context.log.write(message.level, message.text, ())
        else:
            execution.context._spending.reach(message.spent)
            execution.context.progress(message.processed, total=message.total, failed=message.failed)

    def _ended(self, problem: str | None) -> None:
        """No outcome will come any more."""
        self._problem = problem
        if problem is not None:
            self.kill()
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _without_suspicion(self, outcome: Outcome, execution: Runnable) -> Outcome:
        """The suspect ran, and its process lives: it is no suspect any more.

        Where every run has a process of its own, a crash costs no attempt and kills no worker. A snooze or a wait would
        make such a job's crashes count from zero again, for ever: there only an end that uses up an attempt clears it.
        """
        lasts = outcome.ending in (Ending.SNOOZED, Ending.WAITING)
        if lasts and execution.definition.isolation is Isolation.PROCESS:
            return outcome
        return msgspec.structs.replace(outcome, harmless=True)

    def _crash(self, code: int | None) -> Outcome:
        why = spell_end(code) if self._problem is None else f"killed, because {self._problem}"
        message = f"the process of this attempt died: {why}"
        return Outcome(ending=Ending.CRASHED, type="ProcessDied", message=message)


def out_of_memory(used: int, limit: int) -> Outcome:
    return Outcome(
        ending=Ending.RAISED,
        type="MemoryLimit",
        message=f"the process used {mebibytes(used)} of memory, more than its limit of {mebibytes(limit)}",
    )

"""What `drain()` and `run_one()` return: one attempt and how it ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from windlass.model.job import Job
from windlass.model.outcome import Ending
from windlass.model.state import State
from windlass.testing.errors import EndlessDrain, HandlerStuck

FAILURES = frozenset({Ending.RAISED, Ending.TIMED_OUT, Ending.CRASHED, Ending.RETRY, Ending.DEAD})
"""Endings that count as an error; a snooze, a cancel and a release do not."""

FOR_THE_JOB = (Exception, asyncio.CancelledError, SystemExit, GeneratorExit, type(None))
"""Errors that end an attempt. Others, such as Ctrl-C or pytest.fail(), are meant for the test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """One attempt."""

    job: Job  # as it is stored after the attempt
    ending: Ending
    error: BaseException | None = None  # what the handler raised, with its traceback

    @property
    def id(self) -> UUID:
        """The id of the job."""
        return self.job.id

    @property
    def type(self) -> str:
        """The type of the job."""
        return self.job.type

    @property
    def state(self) -> State:
        """The state the attempt left the job in."""
        return self.job.status

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the job, as plain JSON: `ran.arguments["to"]`."""
        return self.job.arguments()

    @property
    def output(self) -> Any:
        """What the handler returned, as it was stored; None unless it succeeded."""
        return None if self.job.output is None else msgspec.json.decode(self.job.output)

    @property
    def failed(self) -> bool:
        """Whether the attempt ended with an error; a snooze, a cancel and a release are none."""
        return self.ending in FAILURES

    def __repr__(self) -> str:
        why = "" if self.error is None else f" ({self.error!r})"
        return f"<ran {call_text(self.job)}: {self.ending.value}{why}>"


def call_text(job: Job) -> str:
    """The job as a call: `send(to='a@example.org')`."""
    return f"{job.type}({', '.join(f'{name}={value!r}' for name, value in job.arguments().items())})"


def raising(ran: list[AttemptResult], strict: bool) -> list[AttemptResult]:
    """What ran; or the error that the last attempt ended with, when the test must see it."""
    __tracebackhide__ = True
    error = to_raise(ran[-1], strict) if ran else None
    if error is not None:
        raise error
    return ran


def to_raise(ran: AttemptResult, strict: bool) -> BaseException | None:
    """The error that a test must see: any, when it is strict; else what no handler means for its job."""
    passes = isinstance(ran.error, (EndlessDrain, HandlerStuck)) or not isinstance(ran.error, FOR_THE_JOB)
    return ran.error if strict or passes else None

"""Which jobs a test expects, and the message when they are not there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from windlass.clock import spell
from windlass.config import suggest
from windlass.declare.jobtype import ConfiguredJob
from windlass.declare.registry import Definition
from windlass.errors import InvalidInput
from windlass.model.job import Job
from windlass.model.state import State
from windlass.payload.sanitise import to_plain
from windlass.testing.errors import HarnessError
from windlass.testing.results import call_text

ENQUEUED = frozenset({State.QUEUED, State.FAILED, State.WAITING})
"""States of a job that has still to run."""

MOST_SHOWN = 20  # jobs in a message

Kind = ConfiguredJob[..., Any] | str
"""A job type: the decorated function, or its type's name."""


class ExpectedJob:
    """A job type and some of its arguments."""

    def __init__(self, kind: Kind, arguments: Mapping[str, Any]) -> None:
        self._definition: Definition | None = kind._definition if isinstance(kind, ConfiguredJob) else None
        self.type = type_of(kind)
        self._arguments = dict(arguments)
        if self._definition is not None:
            known = dict.fromkeys(self._definition.signature.names)
            for name in arguments:
                if name not in known:
                    raise HarnessError(f"{self.type} has no argument {name!r}{suggest(name, known)}")

    def __str__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in self._arguments.items())
        return f"{self.type}({listed})" if listed else self.type

    def fits(self, job: Job) -> bool:
        return job.type == self.type and not self.differences(job)

    def differences(self, job: Job) -> list[str]:
        """Expected arguments for which the job has another value, as two lines each."""
        stored = job.arguments()
        typed = stored if self._definition is None else _typed(self._definition, job)
        lines: list[str] = []
        for name, value in self._arguments.items():
            if name not in typed:
                lines += [f"- {name}={value!r}", f"+ (no {name})"]
            elif not _equal(value, typed[name], stored.get(name)):
                lines += [f"- {name}={value!r}", f"+ {name}={typed[name]!r}"]
        return lines


def type_of(kind: Kind) -> str:
    if isinstance(kind, ConfiguredJob):
        return kind._definition.type
    if isinstance(kind, str):
        return kind
    raise HarnessError(f"{kind!r} is no job type; give the function that @app.job decorates, or its type's name")


def complaint(expected: ExpectedJob, count: str, jobs: Sequence[Job]) -> str:
    """What was expected and what is there instead."""
    enqueued = [job for job in jobs if job.status in ENQUEUED]
    others = [job for job in jobs if job.status not in ENQUEUED and job.type == expected.type]
    lines = [f"expected {count} of {expected}", "enqueued are:" if enqueued else "nothing is enqueued"]
    for job in _near_first(expected, enqueued)[:MOST_SHOWN]:
        lines.append(f"  {call_text(job)}  {job.status.value}")
        if job.type == expected.type:
            lines += [f"    {line}" for line in expected.differences(job)]
    if len(enqueued) > MOST_SHOWN:
        lines.append(f"  … and {len(enqueued) - MOST_SHOWN} more")
    if others:
        lines.append("no longer enqueued:")
        lines += [f"  {call_text(job)}  {job.status.value}" for job in others[:MOST_SHOWN]]
    return "\n".join(lines)


def waiting(jobs: Iterable[Job], now: datetime) -> str:
    """Why nothing is due: what waits, and for how long."""
    lines = [f"  {call_text(job)}: {due(job, now)}" for job in jobs if job.status in ENQUEUED | {State.RUNNING}]
    if not lines:
        return "nothing is enqueued"
    return "\n".join(["nothing is due:", *lines[:MOST_SHOWN]])


def due(job: Job, now: datetime) -> str:
    """Why a job cannot run now."""
    if job.status is State.WAITING:
        return "waiting: let what it waits for happen: windlass.drain(), job.signal(…) or windlass.clock.advance(…)"
    left = (job.run_at - now).total_seconds()
    if job.status in ENQUEUED and left > 0:
        wait = spell(math.ceil(left * 1000) / 1000)
        return f"{job.status.value}, due in {wait}; move the clock: windlass.clock.advance({wait!r})"
    if job.status in ENQUEUED and job.parked_on is not None:
        return (
            f"{job.status.value}, and {job.parked_on!r} has no room: let the ones before it end, or move the clock on "
            "for a rate: windlass.clock.advance(…)"
        )
    if job.status in ENQUEUED:
        return f"{job.status.value} and due, but it cannot be claimed: does this app have its type, is a gate closed?"
    if job.status is State.RUNNING:
        return "running; if its worker died, let its lease end: windlass.clock.advance('31s')"
    return f"{job.status.value}"


def _near_first(expected: ExpectedJob, jobs: Sequence[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: (job.type != expected.type, len(expected.differences(job))))


def _typed(definition: Definition, job: Job) -> dict[str, Any]:
    """The arguments as the handler would get them, defaults included."""
    try:
        return definition.signature.arguments(job.input)
    except InvalidInput:
        return job.arguments()


def _equal(expected: Any, typed: Any, stored: Any) -> bool:
    """The expected value stands on the left, so that `mock.ANY` and `pytest.approx` compare as they do."""
    if bool(expected == typed):
        return True
    try:
        return bool(to_plain(expected) == stored)
    except Exception:  # a matcher cannot travel as JSON
        return False

"""The errors for an operation or a signal that a job's state does not allow."""

from __future__ import annotations

from uuid import UUID

from windlass.errors import JobNotFound, TransitionRefused, WindlassError
from windlass.model.job import Job
from windlass.model.state import State, Verb, allows, sources

OPERATIONS = (Verb.CANCEL, Verb.RETRY, Verb.REPLAY, Verb.RESUME, Verb.DISCARD)


def refusal(verb: Verb, job: UUID, found: Job | None) -> WindlassError:
    """The error for `verb` on a job that does not exist or is in another state."""
    if found is None:
        return JobNotFound(f"there is no job {job}: it never was, was discarded, or its history has passed")
    possible = [other.value for other in OPERATIONS if allows(other, found.status)]
    advice = f"possible now: {', '.join(possible)}" if possible else "enqueue it again instead"
    return TransitionRefused(
        f"cannot {verb.value} job {job}: it is {found.status.value}, and only {describe_sources(verb)} jobs can; "
        f"{advice}"
    )


def describe_sources(verb: Verb) -> str:
    """The states in which a job takes an operation: `failed, queued, running or waiting`."""
    asked = {State.RUNNING} if verb is Verb.CANCEL else set()  # a running job is asked to stop
    *others, last = sorted(sources(verb) | asked)
    return f"{', '.join(others)} or {last}" if others else last


def signal_refusal(job: UUID, name: str, found: Job | None) -> WindlassError:
    """The error for a signal to a job that has ended."""
    if found is None:
        return JobNotFound(f"there is no job {job} to signal: it never was, was discarded, or its history has passed")
    return TransitionRefused(
        f"cannot send the signal {name!r} to job {job}: it is {found.status.value}, so that it receives none any more"
        + ("; replay it first" if found.status is State.DEAD else "")
    )

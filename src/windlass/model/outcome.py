"""What a handler returned or raised, and what is written because of it.

An `Outcome` is the end of an attempt as the processor saw it. A `Transition` is the fenced write that follows;
`policy/failure.py` turns one into the other, in one exhaustive match. A handler ends by returning, by raising an error,
or by raising or returning one of the three directives: `Retry`, `Snooze` and `Dead`.
"""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec

from windlass.clock import Duration, is_duration, seconds_from_now
from windlass.model.flow import Flow
from windlass.model.job import Lease
from windlass.model.state import Verb
from windlass.words import explain_arguments


class Directive(Exception):
    """What a handler raises or returns to decide how its attempt ends: `Retry`, `Snooze` or `Dead`.

    It is an `Exception`: a handler that raises it inside a `try` with `except Exception` catches it. Return it there.
    """

    _is_directive = True  # for the check of return hints: a directive is no result


class Retry(Directive):
    """This attempt failed; the next one is due after `after` instead of the retry policy's delay.

    `raise Retry("busy", after=response.headers["Retry-After"])` uses up an attempt: without one left, the job is dead.
    That header is a number of seconds or an HTTP date; both are understood, here and in `Snooze` and `ctx.hold_back`.
    `return Retry(…)` does the same. With `bucket=`, that rate gives no token to any job for as long, and for a day at
    most: `Retry-After` for all.
    """

    __module__ = "windlass"  # as users import it; the stored error has this name

    @explain_arguments("Retry")
    def __init__(
        self,
        message: str = "the handler asked for a retry",
        *,
        after: Duration | None = None,
        bucket: str | None = None,
    ) -> None:
        if not isinstance(message, str) or is_duration(message):
            raise ValueError(
                f"Retry({message!r}): the first argument is the message; a time is Retry(after={message!r})"
            )
        super().__init__(message)
        self.after = None if after is None else seconds_from_now(after, what="Retry(after=…)")
        if bucket is not None and not (isinstance(bucket, str) and bucket):
            raise ValueError(f'Retry(bucket={bucket!r}): give the name of a rate, such as "wikidata" or "domain:a.org"')
        self.bucket = bucket


class Snooze(Directive):
    """Not now: run again after `delay`; no attempt is used up.

    `raise Snooze("30s")` or `return Snooze("30s")`. `Snooze(…).delay` is the time in seconds, also of a `Retry-After`;
    ValueError: it is no time.
    """

    __module__ = "windlass"

    @explain_arguments("Snooze")
    def __init__(self, delay: Duration) -> None:
        self.delay = seconds_from_now(delay, what="Snooze(…)")
        super().__init__(f"snoozed for {self.delay:g} s")


class Dead(Directive):
    """No retry can help: mark the job dead, with this reason.

    `raise Dead("the address is blocked")` or `return Dead(…)`. `job.replay()` starts a dead job over.
    """

    __module__ = "windlass"

    @explain_arguments("Dead")
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = str(reason)


class Ending(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    RAISED = "raised"
    TIMED_OUT = "timeout"
    CRASHED = "crashed"  # its process died
    RETRY = "retry"
    SNOOZED = "snoozed"
    WAITING = "waiting"  # for children, a signal or a timer
    DEAD = "dead"
    RELEASED = "released"
    CANCELLED = "cancelled"
    LOST = "lost"  # the lease is gone: nothing is written

    @property
    def is_failure(self) -> bool:
        """Whether the attempt failed: the job is tried again, or is dead."""
        return self in FAILURES


FAILURES = frozenset({Ending.RAISED, Ending.TIMED_OUT, Ending.CRASHED, Ending.RETRY, Ending.DEAD})


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one attempt, as plain values that a child process can send through a pipe; all but `exception`."""

    ending: Ending
    output: str | None = None  # JSON
    type: str | None = None  # of the error
    message: str | None = None
    traceback: str | None = None
    exception: BaseException | None = None  # for subscribers; it does not leave its process
    problem: str | None = None  # of a result that could not be stored as it is, or does not fit its hint
    permanent: bool | None = None  # by the job type's lists: True never retries; None: while attempts are left
    delay: float | None = None
    flow: Flow | None = None  # its spawns and its wait
    bucket: str | None = None  # of a Retry: the rate to hold back for `delay`
    harmless: bool = False  # the job was a suspect, and its process survived it: it is no suspect any more
    finished: bool = False  # ctx.transaction() committed the finish already; nothing is left to write


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """What is written when an attempt ends, always under its lease."""

    lease: Lease
    verb: Verb
    delay: float | None = 0.0  # seconds until the job is due again; None: it keeps its place in the queue
    attempt: int = 0  # the number of counted attempts after this
    crashes: int = 0  # the number of crashes after this
    output: str | None = None
    error: str | None = None  # JSON of a Failure; None keeps the stored one
    fingerprint: str | None = None  # of that error; None keeps the stored one
    entry: str | None = None  # JSON of an Attempt to store; None: not worth a record
    reason: str | None = None
    elapsed: float = 0.0  # seconds since the handler started
    total: int | None = None
    processed: int = 0
    failed: int = 0
    cost_cents: int = 0
    flow: Flow | None = None
    action: str | None = None  # the audit's action for a final transition; None: no row
    followed: bool = False  # from the claim: the store checks what else changes
    limited: bool = False  # from the claim: the job holds slots of limits
    charged: bool = False  # this attempt cost something: it is added to the ledger and the budgets
    hold: tuple[str, float] | None = None  # a bucket, and the seconds for which it is held back

    @property
    def job(self) -> UUID:
        return self.lease.job


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a running job; written under its lease, at most once a second."""

    lease: Lease
    total: int | None
    processed: int
    failed: int
    cost_cents: int | None = None  # the sum so far; None: unchanged

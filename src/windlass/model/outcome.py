"""What a handler said, and what is therefore written.

An `Outcome` is the end of an attempt as the processor saw it. A `Transition` is the fenced write that follows;
`policy/failure.py` turns one into the other, in one exhaustive match. A handler speaks by returning, by raising,
or by raising one of the three words here: `Retry`, `Snooze` and `Dead`.
"""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec

from windlass.clock import Duration, seconds
from windlass.model.flow import Flow
from windlass.model.job import Lease
from windlass.model.state import Verb


class Directive(Exception):
    """What a handler raises to say how its attempt ended."""


class Retry(Directive):
    """This attempt failed; the next one is due after `after` instead of what the policy says."""

    def __init__(
        self,
        message: str = "the handler asked for a retry",
        *,
        after: Duration | None = None,
        bucket: str | None = None,
    ) -> None:
        """With `bucket`, everybody who takes tokens of that rate holds back for as long: `Retry-After` for all.

        For a day at most: a job may come back later than that, and does not keep the others waiting.
        """
        super().__init__(message)
        self.after = None if after is None else seconds(after, what="Retry(after=…)")
        if bucket is not None and not (isinstance(bucket, str) and bucket):
            raise ValueError(f'Retry(bucket={bucket!r}): give the name of a rate, such as "wikidata" or "domain:a.org"')
        self.bucket = bucket


class Snooze(Directive):
    """Not now: run again after `delay`, with no attempt burned."""

    def __init__(self, delay: Duration) -> None:
        self.delay = seconds(delay, what="Snooze(…)")
        super().__init__(f"snoozed for {self.delay:g} s")


class Dead(Directive):
    """No retry can help: bury the job, with this reason."""

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


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one attempt, as plain values, so that a child process can send it through a pipe."""

    ending: Ending
    output: str | None = None  # JSON
    type: str | None = None  # of the error
    message: str | None = None
    traceback: str | None = None
    permanent: bool | None = None  # by the job type's lists: True never retries, None leaves it to the attempts
    delay: float | None = None
    flow: Flow | None = None  # what it spawned and what it waits for
    bucket: str | None = None  # of a Retry: everybody holds back for `delay`
    harmless: bool = False  # a suspect ran and its process lives: it is no suspect any more
    finished: bool = False  # ctx.transaction() committed the finish already; nothing is left to write


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """What is written when an attempt ends: always under its lease."""

    lease: Lease
    verb: Verb
    delay: float | None = 0.0  # until the job is due again; None: it keeps its place in the queue
    attempt: int = 0  # the number of attempts that count after this
    crashes: int = 0  # the number of crashes after this
    output: str | None = None
    error: str | None = None  # JSON of a Failure; None keeps what is there
    entry: str | None = None  # JSON of an Attempt to remember; None where nothing is worth a word
    reason: str | None = None
    elapsed: float = 0.0  # seconds since the handler started
    total: int | None = None
    processed: int = 0
    failed: int = 0
    cost_cents: int = 0
    flow: Flow | None = None
    action: str | None = None  # the audit's word for a final transition; None: no row
    followed: bool = False  # as the claim told it: the store looks for what else changes
    limited: bool = False  # as the claim told it: it holds slots that others wait for
    charged: bool = False  # this attempt cost something: ledger and budgets are told
    hold: tuple[str, float] | None = None  # a bucket, and the seconds for which everybody holds back

    @property
    def job(self) -> UUID:
        return self.lease.job


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a running job has come; written under its lease, at most once a second."""

    lease: Lease
    total: int | None
    processed: int
    failed: int
    cost_cents: int | None = None  # in all, as far as it is known; None: nothing new

"""Transitions that the store refused: what is known about the reason, and what it means for new claims.

A refusal is the database's until the contrary is shown. The contrary is shown for one transition when the reason is not
certain (a trigger raised, or something nobody foresaw), when it was refused alone again and again, and when transitions
of its kind were written meanwhile. While the database may be the reason, this worker claims nothing new: what it would
run could not be written either. A single job claimed now and then is the exception: only a fresh transition can show
that the database takes others.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from windlass.clock import Clock
from windlass.errors import StoreError, ValueRefused, WindlassError
from windlass.model import audit
from windlass.model.job import Failure, Job
from windlass.model.outcome import Ending, Outcome, Transition
from windlass.model.state import FINISHING, Verb
from windlass.payload.sanitise import describe
from windlass.policy.failure import encoder
from windlass.store.contact import jittered

PATIENCE = 30.0  # seconds for which a transition is refused while others are written, until it is the culprit
LEAST_TRIES = 8  # of that transition alone, in that time
LONGEST_PAUSE = 1.0  # seconds between two tries
MOST_ASIDE = 100  # transitions that may wait while claims go on
FIRST_PROBE, LONGEST_PROBE = 10.0, 300.0  # seconds until one job is claimed to see whether the database takes its end

VERDICTS = {
    Verb.SUCCEED: "succeeded",
    Verb.ADVANCE: "succeeded",
    Verb.STOP: "cancelled",
    Verb.FAIL: "failed",
    Verb.BURY: "dead",
    Verb.WAIT: "waiting",
    Verb.SNOOZE: "snoozed",
    Verb.RELEASE: "given back",
}


def is_of_values(error: Exception) -> bool:
    """Whether a value of the transition is the reason for certain: a constraint, a key that is taken."""
    return isinstance(error, ValueRefused) or (isinstance(error, WindlassError) and not isinstance(error, StoreError))


class Case:
    """One transition that was refused."""

    __slots__ = ("certain", "since", "transition", "tries")

    def __init__(self, transition: Transition, since: float) -> None:
        self.transition = transition
        self.since = since  # on the monotonic clock
        self.tries = 0  # alone
        self.certain = False  # the database is the reason, whatever the transition


class Refused:
    """What waits until the database takes it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cases: dict[UUID, Case] = {}
        self._written_at: dict[tuple[bool, bool], float] = {}  # by kind: when one was last written
        self._next_try = 0.0
        self._next_probe, self._probe_pause = 0.0, FIRST_PROBE
        self.rounds = 0  # in which all of them were tried

    def __len__(self) -> int:
        return len(self._cases)

    def transitions(self) -> list[Transition]:
        """What waits; what was refused alone most often comes last."""
        return [case.transition for case in sorted(self._cases.values(), key=lambda case: case.tries)]

    def add(self, transitions: Iterable[Transition], error: Exception) -> None:
        """These were refused together, or once more."""
        now = self._clock.monotonic()
        for transition in transitions:
            case = self._cases.get(transition.job)
            if case is None or case.transition.lease != transition.lease:
                self._plan_probe(now)
                case = self._cases[transition.job] = Case(transition, now)
            case.certain = getattr(error, "of_database", False)
            if case.certain:  # what speaks against the transition is counted anew
                case.since, case.tries = now, 0

    def is_guilty(self, transition: Transition) -> bool:
        """It was refused alone, once more: whether that makes it the culprit."""
        case = self._cases[transition.job]
        case.tries += 1
        waited = self._clock.monotonic() - case.since
        return case.tries >= LEAST_TRIES and waited >= PATIENCE and self._speaks_against(case)

    def written(self, transitions: Iterable[Transition]) -> None:
        """These were written: the database takes their kind."""
        now = self._clock.monotonic()
        for transition in transitions:
            self._written_at[kind(transition)] = now

    def remove(self, jobs: Iterable[UUID]) -> None:
        """These are settled, whichever way."""
        for job in jobs:
            self._cases.pop(job, None)
        if not self._cases:
            self.clear()

    def keep(self, jobs: Iterable[UUID]) -> None:
        """The leases of all others are lost."""
        self.remove(self._cases.keys() - set(jobs))

    def clear(self) -> None:
        self._cases.clear()
        self.rounds, self._next_try = 0, 0.0

    # When to try again

    def tried(self) -> None:
        """A round is over; the next one comes after a pause."""
        self.rounds += 1
        self._next_try = self._clock.monotonic() + jittered(self.rounds, LONGEST_PAUSE)

    def next_in(self) -> float | None:
        """Seconds until the next round; None: nothing waits."""
        return max(0.0, self._next_try - self._clock.monotonic()) if self._cases else None

    # What may be claimed

    def room(self, held: int) -> int | None:
        """How many new jobs may be claimed by a worker that holds so many; None: as many as it likes."""
        if not self._cases:
            return None
        cases = self._cases.values()
        if len(cases) <= MOST_ASIDE and all(self._speaks_against(case) for case in cases):
            return None
        probes = held == len(cases) <= MOST_ASIDE and self._clock.monotonic() >= self._next_probe
        return int(probes and not any(case.certain for case in cases))

    def _speaks_against(self, case: Case) -> bool:
        """Whether others of its kind were written since it was refused, so that the database is not the reason."""
        return not case.certain and self._written_at.get(kind(case.transition), 0.0) > case.since

    def _plan_probe(self, now: float) -> None:
        if not self._cases:
            self._next_probe, self._probe_pause = now + FIRST_PROBE, FIRST_PROBE
        elif now >= self._next_probe:  # the last probe was refused, too
            self._probe_pause = min(2 * self._probe_pause, LONGEST_PROBE)
            self._next_probe = now + self._probe_pause


def kind(transition: Transition) -> tuple[bool, bool]:
    """Transitions of one kind are written by the same statements: whether the job leaves, and whether more follows."""
    more = transition.flow is not None or transition.followed or transition.limited or transition.charged
    return transition.verb in FINISHING, more or transition.hold is not None


def burial(transition: Transition, error: Exception, clock: Clock) -> Transition:
    """Instead of a transition that cannot be written: dead, with the verdict that could not be stored, and why."""
    verdict = VERDICTS[transition.verb]
    if transition.reason is not None and transition.verb is Verb.BURY:
        verdict += f" ({transition.reason})"
    reason = f"{verdict}, could not be stored"
    type, message, _ = describe(error)
    failure = Failure(
        type=type,
        message=f"{reason}: {message}",
        attempt=transition.attempt,
        attempted_at=clock.now(),
    )
    return Transition(
        lease=transition.lease,
        verb=Verb.BURY,
        attempt=transition.attempt,
        crashes=transition.crashes,
        error=encoder.encode(failure).decode(),
        reason=reason,
        elapsed=transition.elapsed,
        action=audit.DEAD,
        followed=transition.followed,
        limited=transition.limited,
        charged=transition.charged,
        cost_cents=transition.cost_cents,
    )


def untold(job: Job, outcome: Outcome, error: Exception, clock: Clock) -> Transition:
    """The burial of a job whose transition could not be made, with how its attempt ended."""
    verb = Verb.SUCCEED if outcome.ending is Ending.SUCCEEDED else Verb.FAIL
    made = Transition(
        lease=job.lease,
        verb=verb,
        attempt=job.attempt,
        crashes=job.crashes,
        cost_cents=job.cost_cents,
        followed=job.followed,
        limited=bool(job.limits),
    )
    return burial(made, error, clock)

"""Transitions that the store refused: what is known about the reason, and what it means for new claims.

A refusal is the database's fault until the contrary is shown. The contrary is shown for one transition when the reason
is not certain (a trigger raised, or an error that was not foreseen), when the transition was refused alone again and
again, and when transitions of its kind were written meanwhile. While the database may be the reason, this worker claims
nothing new: the finish of a new job could not be written either. A single job claimed now and then is the exception:
only a fresh transition can show that the database takes others.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from windlass.clock import Clock
from windlass.errors import StoreError, ValueRefused, WindlassError
from windlass.model import audit
from windlass.model.job import Failure, Job
from windlass.model.outcome import Ending, Outcome, Transition
from windlass.model.state import ENDING_VERBS, Verb
from windlass.payload.sanitise import describe
from windlass.policy.failure import encoder
from windlass.policy.fingerprint import fingerprint
from windlass.store.contact import jittered

PATIENCE_SECONDS = 30.0  # for which a transition is refused while others are written, until it is the culprit
LEAST_TRIES = 8  # of that transition alone, in that time
LONGEST_PAUSE_SECONDS = 1.0  # between two tries
MOST_REFUSED = 100  # transitions that may wait while claims go on
FIRST_PROBE_SECONDS = 10.0  # until one job is claimed to see whether the database takes its finish
LONGEST_PROBE_SECONDS = 300.0  # until the next one, when that was refused

VERDICTS = {
    Verb.SUCCEED: "succeeded",
    Verb.ADVANCE: "succeeded",
    Verb.STOP: "cancelled",
    Verb.FAIL: "failed",
    Verb.BURY: "dead",
    Verb.WAIT: "waiting",
    Verb.SNOOZE: "snoozed",
    Verb.RELEASE: "released",
}


def is_caused_by_values(error: Exception) -> bool:
    """Whether a value of the transition is the reason for certain: a constraint, a key that is taken."""
    return isinstance(error, ValueRefused) or (isinstance(error, WindlassError) and not isinstance(error, StoreError))


class RefusedTransition:
    """One transition that was refused."""

    __slots__ = ("certain", "since", "transition", "tries")

    def __init__(self, transition: Transition, since: float) -> None:
        self.transition = transition
        self.since = since  # on the monotonic clock
        self.tries = 0  # alone
        self.certain = False  # the database is the reason, whatever the transition


class RefusedTransitions:
    """Transitions that wait until the database takes them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cases: dict[UUID, RefusedTransition] = {}
        self._written_at: dict[tuple[bool, bool], float] = {}  # by kind: when one was last written
        self._next_try = 0.0
        self._next_probe, self._probe_pause = 0.0, FIRST_PROBE_SECONDS
        self.rounds = 0  # in which all of them were tried

    def __len__(self) -> int:
        return len(self._cases)

    def transitions(self) -> list[Transition]:
        """Those that wait; the ones that were refused alone most often come last."""
        return [case.transition for case in sorted(self._cases.values(), key=lambda case: case.tries)]

    def add(self, transitions: Iterable[Transition], error: Exception) -> None:
        """These were refused together, or once more."""
        now = self._clock.monotonic()
        for transition in transitions:
            case = self._cases.get(transition.job)
            if case is None or case.transition.lease != transition.lease:
                self._plan_probe(now)
                case = self._cases[transition.job] = RefusedTransition(transition, now)
            case.certain = getattr(error, "of_database", False)
            if case.certain:  # the evidence against the transition is counted anew
                case.since, case.tries = now, 0

    def is_guilty(self, transition: Transition) -> bool:
        """The transition was refused alone, once more: whether that makes it the culprit."""
        case = self._cases[transition.job]
        case.tries += 1
        waited = self._clock.monotonic() - case.since
        return case.tries >= LEAST_TRIES and waited >= PATIENCE_SECONDS and self._others_were_written(case)

    def record_written(self, transitions: Iterable[Transition]) -> None:
        """These were written: the database takes their kind."""
        now = self._clock.monotonic()
        for transition in transitions:
            self._written_at[kind(transition)] = now

    def remove(self, jobs: Iterable[UUID]) -> None:
        """These are finished, whichever way."""
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

    def end_round(self) -> None:
        """All of them were tried; the next round comes after a pause."""
        self.rounds += 1
        self._next_try = self._clock.monotonic() + jittered(self.rounds, LONGEST_PAUSE_SECONDS)

    def next_in(self) -> float | None:
        """Seconds until the next round; None: nothing waits."""
        return max(0.0, self._next_try - self._clock.monotonic()) if self._cases else None

    # What may be claimed

    def room(self, held: int) -> int | None:
        """How many new jobs may be claimed by a worker that holds this number of leases; None: no limit."""
        if not self._cases:
            return None
        cases = self._cases.values()
        if len(cases) <= MOST_REFUSED and all(self._others_were_written(case) for case in cases):
            return None
        probes = held == len(cases) <= MOST_REFUSED and self._clock.monotonic() >= self._next_probe
        return int(probes and not any(case.certain for case in cases))

    def _others_were_written(self, case: RefusedTransition) -> bool:
        """Whether others of its kind were written since it was refused, so that the database is not the reason."""
        return not case.certain and self._written_at.get(kind(case.transition), 0.0) > case.since

    def _plan_probe(self, now: float) -> None:
        if not self._cases:
            self._next_probe, self._probe_pause = now + FIRST_PROBE_SECONDS, FIRST_PROBE_SECONDS
        elif now >= self._next_probe:  # the last probe was refused, too
            self._probe_pause = min(2 * self._probe_pause, LONGEST_PROBE_SECONDS)
            self._next_probe = now + self._probe_pause


def kind(transition: Transition) -> tuple[bool, bool]:
    """Transitions of one kind are written by the same statements: whether the job leaves, and whether more follows."""
    more = transition.flow is not None or transition.followed or transition.limited or transition.charged
    return transition.verb in ENDING_VERBS, more or transition.hold is not None


def burial_of(transition: Transition, error: Exception, clock: Clock) -> Transition:
    """Instead of a transition that cannot be written: the job is dead, with the verdict and why it was not stored."""
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
        fingerprint=fingerprint(failure.type, failure.message),
        reason=reason,
        elapsed=transition.elapsed,
        action=audit.DEAD,
        followed=transition.followed,
        limited=transition.limited,
        charged=transition.charged,
        cost_cents=transition.cost_cents,
    )


def burial_without_transition(job: Job, outcome: Outcome, error: Exception, clock: Clock) -> Transition:
    """The burial of a job when its transition could not be made, with how its attempt ended."""
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
    return burial_of(made, error, clock)

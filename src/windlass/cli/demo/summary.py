"""The check at the end: what the store holds, compared with what was enqueued. Only the store counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from windlass.cli.demo import program
from windlass.model.job import Attempt, Job, attempts_in
from windlass.model.outcome import Ending
from windlass.model.state import FINAL, State
from windlass.policy.failure import CRASHED, EXHAUSTED

NEVER = datetime.max.replace(tzinfo=UTC)
DYING = ("import_feed", "refund")  # job types; each of their jobs dies


@dataclass(frozen=True, slots=True)
class Check:
    """A sentence, and whether it is true."""

    text: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of the show."""

    checks: Sequence[Check]
    ended: int
    enqueued: int
    seconds: float
    peak: float  # jobs per second
    logs: Sequence[str] = ()  # of the workers, where a check failed

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)

    @property
    def verdict(self) -> str:
        """One sentence about the whole show."""
        if not self.holds:
            return "this should not have happened; please report it, with these lines"
        if not self.enqueued:
            return "the demo ended before a job was enqueued"
        done = f"{self.ended} jobs in {self.seconds:.0f} s, at most {self.peak:.0f} per second"
        left = self.enqueued - self.ended
        return f"{done}; {left} had not ended" if left else done


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What was enqueued, and what the store holds afterwards."""

    enqueued: int
    counts: Mapping[State, int]
    cast: Sequence[Job]  # every job of a short show, the latest ones of a long one
    victims: frozenset[UUID]  # jobs that ran in a worker when it was killed
    complete: bool  # the show was not interrupted
    beats: Mapping[datetime, UUID] = field(default_factory=dict)  # ticks of the heartbeat, and the job of each


def check(account: Account) -> list[Check]:
    """Every check that applies to this account. An interrupted show is checked by the jobs that ended."""
    ended = [job for job in account.cast if job.status in FINAL]
    lost = account.enqueued - sum(account.counts.values())
    checks = [Check(f"{account.enqueued} jobs enqueued, {lost} lost", lost == 0)]
    if account.complete:
        checks.append(_all_ended(account))
    checks += [
        Check(text, all(holds(job) for job in jobs))
        for text, chosen, holds in EXPECTED
        if (jobs := [job for job in ended if chosen(job)])
    ]
    checks += _overtaking(account.cast)
    checks += _limits([job for job in ended if job.type == "fetch_price"])
    checks += _phases([job for job in ended if job.pipeline == program.order.name])
    checks += _beats(account)
    rescued = [job for job in ended if job.id in account.victims]
    if rescued or account.complete:
        text = "the killed worker's render was rescued, ran again and succeeded"
        checks.append(Check(text, bool(rescued) and all(_was_rescued(job) for job in rescued)))
    return checks


def _all_ended(account: Account) -> Check:
    dying = sum(_should_die(job) for job in account.cast)
    succeeded, dead = account.counts.get(State.SUCCEEDED, 0), account.counts.get(State.DEAD, 0)
    expected = account.enqueued - dying
    text = f"{succeeded} of {expected} succeeded that should, {dead} of {dying} died that should"
    return Check(text, (succeeded, dead) == (expected, dying))


def _overtaking(cast: Sequence[Job]) -> list[Check]:
    """How many newsletters each reset overtook, of those that waited when it was enqueued."""
    letters = [job for job in cast if job.type == "newsletter"]
    passed = [
        sum(_start(letter) > _start(reset) for letter in waiting)
        for reset in cast
        if reset.type == "password_reset" and reset.status in FINAL
        if (waiting := [letter for letter in letters if letter.created_at < reset.created_at < _start(letter)])
    ]
    if not passed:
        return []
    return [Check(f"each password reset overtook {min(passed)} newsletters or more", min(passed) > 0)]


def _limits(fetches: Sequence[Job]) -> list[Check]:
    """How many ran at a time, from the times of the attempts that succeeded."""
    if not fetches:
        return []
    domains = {str(job.arguments()["domain"]) for job in fetches}
    most = max(_most_at_once([job for job in fetches if job.arguments()["domain"] == domain]) for domain in domains)
    text = f"{len(fetches)} prices were fetched, never more than {program.AT_ONCE} at a time of one domain"
    return [Check(text, most <= program.AT_ONCE)]


def _most_at_once(jobs: Sequence[Job]) -> int:
    """The most jobs that ran at the same time; a start at the moment of an end comes after it."""
    starts = [(job.started_at, 1) for job in jobs if job.started_at and job.finished_at]
    ends = [(job.finished_at, -1) for job in jobs if job.started_at and job.finished_at]
    running = most = 0
    for _, change in sorted([*starts, *ends], key=lambda event: (event[0] or NEVER, event[1])):
        running += change
        most = max(most, running)
    return most


def _beats(account: Account) -> list[Check]:
    """Each tick has its own job, whichever worker was the leader or was killed."""
    if not account.beats:
        return [Check("the heartbeat fired", False)] if account.complete else []
    ticks = sorted(account.beats)
    even = all(at.timestamp() % program.BEAT == 0 for at in ticks)
    text = f"the heartbeat fired {len(ticks)} times, one job for each tick"
    return [Check(text, even and len(set(account.beats.values())) == len(ticks))]


def _phases(orders: Sequence[Job]) -> list[Check]:
    """The phases of the orders, from the attempts in the store."""
    if not orders:
        return []
    names = ", ".join(program.order.phases)
    through = all(
        _phases_passed(order) == program.order.phases and _result(order) == program.SHIPPED for order in orders
    )
    checks = [Check(f"{len(orders)} orders went through three phases each, in order: {names}", through)]
    unlucky = [order for order in orders if order.arguments()["order"] == program.UNLUCKY]
    if unlucky:
        text = f"order {program.UNLUCKY} failed in its second phase, and was retried there"
        checks.append(Check(text, all(_failed_in(order) == ["pack"] for order in unlucky)))
    return checks


def _phases_passed(job: Job) -> tuple[str, ...]:
    """The phases that succeeded, in order; the success of the last phase is the job's own."""
    passed = [entry.phase or "" for entry in _attempts(job) if entry.outcome == Ending.SUCCEEDED]
    return (*passed, job.phase) if job.status is State.SUCCEEDED else tuple(passed)


def _failed_in(job: Job) -> list[str | None]:
    return [entry.phase for entry in _attempts(job) if entry.error is not None]


def _attempts(job: Job) -> list[Attempt]:
    return attempts_in(job.attempts)


def _result(job: Job) -> object:
    return None if job.output is None else msgspec.json.decode(job.output)


def _should_die(job: Job) -> bool:
    return job.type in DYING or _is_broken(job)


def _is_broken(job: Job) -> bool:
    return job.type == "thumbnail" and program.BROKEN in job.input


def _was_rescued(job: Job) -> bool:
    return job.status is State.SUCCEEDED and job.crashes > 0


def _start(job: Job) -> datetime:
    """A job that has not started counts as later than every other."""
    return job.started_at or NEVER


def _of(type: str) -> Callable[[Job], bool]:
    return lambda job: job.type == type


Expectation = tuple[str, Callable[[Job], bool], Callable[[Job], bool]]

EXPECTED: tuple[Expectation, ...] = (
    (
        f"sync_stock failed {program.SYNC_ATTEMPTS - 1} times, was retried and succeeded",
        _of("sync_stock"),
        lambda job: job.status is State.SUCCEEDED and job.attempt == program.SYNC_ATTEMPTS,
    ),
    (
        "ask_partner was stopped at its timeout, was retried and succeeded",
        _of("ask_partner"),
        lambda job: job.status is State.SUCCEEDED and job.attempt == 2,
    ),
    (
        f"import_feed is dead: its {program.FEED_ATTEMPTS} attempts are used up",
        _of("import_feed"),
        lambda job: (job.status, job.attempt, job.reason) == (State.DEAD, program.FEED_ATTEMPTS, EXHAUSTED),
    ),
    (
        "refund is dead after one attempt: its handler raised Dead",
        _of("refund"),
        lambda job: job.status is State.DEAD and job.attempt == 1,
    ),
    (
        f"thumbnail of {program.BROKEN} is quarantined: its process crashed {program.MAX_CRASHES} times",
        _is_broken,
        lambda job: (job.status, job.crashes, job.reason) == (State.DEAD, program.MAX_CRASHES, CRASHED),
    ),
)

"""Why a job does not start: the one place that decides it, for lists, for one job and for programs.

What may keep a job is read once for a page of jobs: gates, budgets and workers, the limits of these jobs, and what the
waiting ones wait for. Of a page without a job that could start, nothing is read.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from windlass.clock import format_span, to_local
from windlass.model.admission import BudgetRow, Gate, LimitRow, resume_command
from windlass.model.flow import Waiting
from windlass.model.job import Job
from windlass.model.rows import WaitKind, WaitReason, WorkerRow
from windlass.model.state import CLAIMABLE, State

if TYPE_CHECKING:
    from windlass.store.protocol import Store


EPOCH = datetime.fromtimestamp(0, UTC)


class Hindrances(msgspec.Struct, frozen=True, kw_only=True):
    """What may keep the jobs of a page from starting, as the store has it now."""

    now: datetime
    gates: Sequence[Gate] = ()  # closed ones
    budgets: Sequence[BudgetRow] = ()  # spent ones
    workers: Sequence[WorkerRow] = ()
    limits: Mapping[str, LimitRow] = {}
    waits: Mapping[UUID, Waiting] = {}


async def read_reasons(store: Store, jobs: Sequence[Job]) -> dict[UUID, list[WaitReason]]:
    """Everything that keeps each of these jobs from starting; what has to end first comes first."""
    found = await read_hindrances(store, jobs)
    return {job.id: list(explain(job, found)) for job in jobs}


async def read_hindrances(store: Store, jobs: Sequence[Job]) -> Hindrances:
    if all(job.status not in (*CLAIMABLE, State.WAITING) for job in jobs):
        return Hindrances(now=EPOCH)
    now = await store.now()
    waiting = [job.id for job in jobs if job.status is State.WAITING]
    waits = await store.waits(waiting) if waiting else {}
    claimable = [job for job in jobs if job.status in CLAIMABLE]
    if not claimable:
        return Hindrances(now=now, waits=waits)
    keys = sorted({key for job in claimable for key in _keys(job)})
    return Hindrances(
        now=now,
        gates=[gate for gate in await store.gates() if gate.is_closed],
        budgets=[budget for budget in await store.budgets() if budget.is_spent],
        workers=await store.workers(),
        limits={row.key: row for row in await store.limits(*keys)} if keys else {},
        waits=waits,
    )


def _keys(job: Job) -> list[str]:
    """The limits and rates of a job; the one that it is parked on comes first."""
    return list(dict.fromkeys([*([job.parked_on] if job.parked_on else []), *(job.limits or ())]))


def explain(job: Job, found: Hindrances) -> Iterator[WaitReason]:
    """The reasons for one job; none where it runs, has ended, or may be claimed now."""
    if job.status is State.WAITING and job.id in found.waits:
        yield explain_wait(job.id, found.waits[job.id], found.now)
    if job.status in CLAIMABLE:
        reasons = [*_not_due(job, found.now), *_closed(job, found), *_unserved(job, found.workers), *_full(job, found)]
        yield from reasons or _busy(job, found.workers)


# A job that could be claimed


def _not_due(job: Job, now: datetime) -> Iterator[WaitReason]:
    # A job that was due when it was written stays due, although the clock was set back since.
    wait = (job.run_at - now).total_seconds()
    if wait > 0 and job.run_at > max(job.created_at, job.updated_at):
        failed = job.status is State.FAILED
        yield WaitReason(
            kind=WaitKind.TIME,
            name="",
            text=f"{'again' if failed else 'due'} in {format_span(wait)}",
            until=job.run_at,
            command=f"windlass jobs retry {job.id}" if failed else None,
        )


def _closed(job: Job, found: Hindrances) -> Iterator[WaitReason]:
    """The closed gates and the spent budgets of this job."""
    own = {("all", ""), ("queue", job.queue), ("type", job.type), ("tenant", job.tenant)}
    for gate in found.gates:
        if (gate.kind, gate.name) in own:
            name = "all" if gate.kind == "all" else f"{gate.kind}:{gate.name}"
            command = resume_command(gate.kind, gate.name)
            yield WaitReason(kind=WaitKind.GATE, name=name, text=gate.describe(), command=command)
    for budget in found.budgets:
        if (budget.kind, budget.name) in own:
            yield _spent(budget, found.now)


def _spent(budget: BudgetRow, now: datetime) -> WaitReason:
    opens = f"spent, opens in {format_span((budget.until - now).total_seconds())}"
    return WaitReason(
        kind=WaitKind.BUDGET,
        name=f"{budget.kind}:{budget.name}",
        text=f"the budget of {budget.kind} {budget.name} is {opens if budget.cents else '0: none of its jobs starts'}",
        until=budget.until if budget.cents else None,
        command=f"windlass budgets set --{budget.kind} {shlex.quote(budget.name)} CENTS --per …",
    )


def _unserved(job: Job, workers: Sequence[WorkerRow]) -> Iterator[WaitReason]:
    """No live worker claims jobs of this queue, or none of them knows the type."""
    serving = [worker for worker in workers if worker.serves_queue(job.queue)]
    command = f"windlass worker app.py --queue {shlex.quote(job.queue)}"
    if not serving:
        text = f"no live worker serves queue {job.queue}"
        yield WaitReason(kind=WaitKind.WORKER, name=f"queue:{job.queue}", text=text, command=command)
    elif not any(job.type in worker.types for worker in serving):
        text = f"no live worker of queue {job.queue} knows the type {job.type}"
        yield WaitReason(kind=WaitKind.TYPE, name=f"type:{job.type}", text=text, command=command)


def _full(job: Job, found: Hindrances) -> Iterator[WaitReason]:
    """The limits and rates without room; the one on which a claim parked the job counts in any case."""
    for key in _keys(job):
        row = found.limits.get(key)
        if row is not None and (row.is_full or key == job.parked_on):
            yield _explain_limit(row, found.now)
        elif key == job.parked_on:
            yield WaitReason(kind=WaitKind.LIMIT, name=key, text=f"waits for {key}")


def _explain_limit(row: LimitRow, now: datetime) -> WaitReason:
    noun = "limit" if row.period is None else "rate"
    kind, verb = WaitKind(noun), "show"
    if row.held > 0:
        kind, verb = WaitKind.HOLD, "release"
        how = f"held back for {format_span(row.held)} more"
    elif row.period is None:
        how = f"{row.describe_use()} in use"
    else:
        how = f"{row.describe_rule()}, next token {row.describe_room()}"
    return WaitReason(
        kind=kind,
        name=row.key,
        text=f"waits for {noun} {row.key} ({how})",
        until=now + timedelta(seconds=row.room_in) if row.room_in else None,
        command=f"windlass limits {verb} {shlex.quote(row.key)}",
    )


def _busy(job: Job, workers: Sequence[WorkerRow]) -> Iterator[WaitReason]:
    """Every worker that would run the job holds as many jobs as it runs at a time, or more."""
    able = [worker for worker in workers if worker.serves(job)]
    if able and all(worker.running >= worker.concurrency for worker in able):
        jobs, most = sum(worker.running for worker in able), sum(worker.concurrency for worker in able)
        who = "its worker is busy: it holds" if len(able) == 1 else f"its {len(able)} workers are busy: they hold"
        runs = "runs" if len(able) == 1 else "run"
        text = f"{who} {jobs:,} job{'' if jobs == 1 else 's'} and {runs} {most:,} at a time"
        yield WaitReason(kind=WaitKind.BUSY, name=f"queue:{job.queue}", text=text, command="windlass workers")


# A waiting job


def explain_wait(job: UUID, waiting: Waiting, now: datetime) -> WaitReason:
    """`waits for the signal approved, until 14:00:00 (in 59m)`."""
    kind, name, command = WaitKind.SLEEP, "", None
    parts: list[str] = []
    if waiting.need or waiting.pending:
        kind, command = WaitKind.JOBS, f"windlass jobs show {job}"
        parts.append(f"for jobs: {waiting.succeeded:,} of {waiting.need:,} needed, {waiting.pending:,} to come")
    if waiting.signal is not None:
        kind, name = WaitKind.SIGNAL, waiting.signal
        command = f"windlass jobs signal {job} {shlex.quote(waiting.signal)}"
        parts.append(f"for the signal {waiting.signal}")
    if waiting.wake_at is not None:
        left = (waiting.wake_at - now).total_seconds()
        when = f"in {format_span(left)}" if left > 0 else f"{format_span(-left)} ago"
        parts.append(f"until {to_local(waiting.wake_at):%Y-%m-%d %H:%M:%S} ({when})")
    return WaitReason(kind=kind, name=name, text=f"waits {', '.join(parts)}", until=waiting.wake_at, command=command)

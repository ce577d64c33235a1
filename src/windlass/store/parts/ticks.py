"""The ticks of a schedule: what is due fires, once each, with any number of workers.

One transaction moves `next_at` on from a tick, enqueues the job and records what became of the tick. A second worker
finds the row moved, or locked, and does nothing. No leader is needed: every worker checks. A leader that freezes would
delay every schedule until its lease ends; a worker that freezes here delays one schedule, for seconds.

The timetable and the job's template are read from the row, not from the worker's program: during a deploy, old and new
workers fire the same. What is due is decided with the database's clock.

Order of locks: a schedule, then jobs as everywhere. A transaction that holds a job's lock never asks for a schedule's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from windlass import failpoints
from windlass.errors import ScheduleError
from windlass.model import audit
from windlass.model.job import NewJob, new_id
from windlass.model.schedule import Declared, Edited, Overlap, ScheduleRow, Ticked, TickOutcome
from windlass.model.state import State, Verb
from windlass.store.parts.consequences import enqueue_jobs, propagate, record_job_action
from windlass.store.parts.statements import Statements, run, uuid_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
KEY_IS_HELD = "this job has its unique key"

declared_of = msgspec.json.Decoder(Declared)
edited_of = msgspec.json.Decoder(Edited)


class TickResult(msgspec.Struct, frozen=True):
    """What one transaction did, and the wake-ups to send after its commit."""

    ticked: Ticked
    queues: set[str] = set()
    asked: tuple[UUID, ...] = ()  # running jobs that were asked to stop


def tick_page(name: str) -> Statements[TickResult]:
    """One page of the due ticks: `next_at` is moved, each tick fires or is skipped, and that is recorded."""
    from windlass.policy.cron import due, first

    rows = yield from run("lock_due_schedule", [name])
    if not rows:
        return TickResult(Ticked())
    *known, done, set_back = rows[0]
    row = schedule_row(known)
    assert row.next_at is not None
    if set_back:
        # The clock was set back by more than an hour: a schedule of every minute would sleep that long. Its ticks fire
        # again when their time comes again. After a smaller step, ticks are late rather than fired twice (below).
        sooner = min(row.next_at, first(row.timing, row.now) or row.next_at)
        yield from run("set_schedule_back", [{"name": name, "next": micros_of(sooner)}])
        return TickResult(Ticked(moved=True))
    found = due(row.timing, row.next_at, row.now, row.catch_up)
    move = {"name": name, "old": micros_of(row.next_at), "new": micros_of(found.next_at)}
    if not (yield from run("move_schedule", [move])):
        return TickResult(Ticked())
    if failpoints.armed:
        failpoints.hit("tick.moved")
    # After a clock was set back, ticks that have been recorded become due again.
    fresh = [tick for tick in found.fire if done is None or tick > time_of(done)]
    missed = [tick for tick in found.missed if done is None or tick > time_of(done)]
    records = []
    if missed:
        records.append(
            tick_record(name, missed[0], TickOutcome.MISSED, reason=f"{len(missed):,} tick{'s' * (len(missed) > 1)}")
        )
    reason = f"for {len(missed) + 1:,} missed ticks" if missed else "missed, and made up for"
    fired, asked = yield from _fire(row, fresh, {} if found.caught is None else {found.caught: reason})
    if fired or records:
        yield from run("record_ticks", [*records, *fired])
    jobs = sum(record["outcome"] == TickOutcome.FIRED for record in fired)
    ticked = Ticked(fired=jobs, skipped=len(fired) - jobs, missed=len(missed), moved=True)
    return TickResult(ticked, {row.job.queue} if jobs else set(), asked)


TickRecord = dict[str, object]


def _fire(
    row: ScheduleRow, ticks: Sequence[datetime], reasons: Mapping[datetime, str]
) -> Statements[tuple[list[TickRecord], tuple[UUID, ...]]]:
    """Enqueue a job for each tick that `overlap` allows; returns a record per tick, and the jobs asked to stop."""
    left: dict[datetime, str] = {}
    asked: tuple[UUID, ...] = ()
    if ticks and row.overlap is Overlap.SKIP:
        busy = row.last_job is not None and bool((yield from run("lock_job", [row.last_job])))
        left = dict.fromkeys(ticks if busy else ticks[1:], "the last job has not ended")
    elif ticks and row.overlap is Overlap.CANCEL:
        asked = yield from _cancel_last_job(row)
        left = dict.fromkeys(ticks[:-1], "overtaken by the next tick")
    jobs = {
        tick: msgspec.structs.replace(row.job, id=new_id(), run_at=tick, delay=None)
        for tick in ticks
        if tick not in left
    }
    holders = yield from enqueue_new(list(jobs.values()))
    records = []
    for tick in ticks:
        job = jobs.get(tick)
        if job is None:
            records.append(tick_record(row.name, tick, TickOutcome.SKIPPED, reason=left[tick]))
        elif job.id in holders:
            records.append(tick_record(row.name, tick, TickOutcome.SKIPPED, holders[job.id], KEY_IS_HELD))
        else:
            records.append(tick_record(row.name, tick, TickOutcome.FIRED, job.id, reasons.get(tick)))
    return records, asked


def enqueue_new(jobs: Sequence[NewJob]) -> Statements[Mapping[UUID, UUID]]:
    """Write jobs; returns, for each job that was not written, the job that holds its key: it may be one of these."""
    from windlass.policy.unique import merge_repeated

    if not jobs:
        return {}
    fresh, repeated = merge_repeated(jobs)
    existing = yield from enqueue_jobs(fresh)
    return {**existing, **{id: existing.get(holder, holder) for id, holder in repeated.items()}}


def _cancel_last_job(row: ScheduleRow) -> Statements[tuple[UUID, ...]]:
    """Cancel the last job as an operator would: a running one is asked to stop and returned, any other ends at once."""
    if row.last_job is None:
        return ()
    actor = f"schedule:{row.name}"
    found = yield from run("lock_job", [row.last_job])  # waits for a transaction that is ending it now
    if not found:
        return ()
    if found[0][1] == State.RUNNING:
        yield from run("request_cancels", [row.last_job])
        yield from record_job_action(audit.OPERATIONS[Verb.CANCEL], actor, row.last_job)
        return (row.last_job,)
    gone = yield from run("cancel_many", [{"id": row.last_job, "reason": "overtaken by its schedule", "actor": actor}])
    yield from propagate([uuid_of(each[0]) for each in gone])
    return ()


def tick_record(
    schedule: str, at: datetime, outcome: TickOutcome, job: UUID | None = None, reason: str | None = None
) -> TickRecord:
    return {"schedule": schedule, "at": micros_of(at), "outcome": outcome, "job": job, "reason": reason}


# Rows


def schedule_row(row: Sequence[Any]) -> ScheduleRow:
    name, declared, edited, edited_by, paused, paused_by, paused_at, reason, next_at, last_at, last_job, now = row
    try:
        own, changes = declared_of.decode(declared), None if edited is None else edited_of.decode(edited)
    except msgspec.MsgspecError as error:
        raise ScheduleError(f"schedule {name!r} was written by another version: {error}; upgrade this one") from None
    return ScheduleRow(
        name=name,
        declared=own,
        edited=changes,
        edited_by=edited_by,
        paused=bool(paused),
        paused_by=paused_by,
        paused_at=None if paused_at is None else time_of(paused_at),
        reason=reason,
        next_at=None if next_at is None else time_of(next_at),
        last_at=None if last_at is None else time_of(last_at),
        last_job=None if last_job is None else uuid_of(last_job),
        now=time_of(now),
    )


def time_of(micro: int) -> datetime:
    return EPOCH + micro * MICROSECOND


def micros_of(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - EPOCH) // MICROSECOND

"""Schedules, written once for both stores: declaring, ticking, and what operators do to them.

A tick belongs to whoever moves `next_at` on from it. One transaction does that, enqueues the job and writes down what
became of the tick; whoever comes second finds the row moved, or in other hands, and does nothing. So each tick fires
once with any number of workers, and no leader is needed: every worker looks. A leader that freezes would keep every
schedule waiting until its lease ends; a worker that freezes here keeps one of them, for seconds.

The timetable and the job's template are the row's, not the worker's own: while a deploy is under way, old and new
workers fire the same. What is due is decided with the database's clock.

The order of locks: a schedule, then jobs as everywhere. Nobody who holds a job asks for a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from windlass import failpoints
from windlass.clock import spell
from windlass.config import suggest
from windlass.errors import ScheduleError, ScheduleNotFound
from windlass.model import audit
from windlass.model.job import NewJob, new_id
from windlass.model.schedule import Declared, Edit, Edited, Outcome, Overlap, ScheduleRow, Ticked, TickRow
from windlass.model.state import State, Verb
from windlass.store.parts.admission import record_subject_action
from windlass.store.parts.consequences import enqueue_jobs, propagate, record_job_action
from windlass.store.parts.messages import cancel_message
from windlass.store.parts.statements import Statements, run, uuid_of

T = TypeVar("T")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

declared_of = msgspec.json.Decoder(Declared)
edited_of = msgspec.json.Decoder(Edited)


class SchedulesPart:
    """The half of a store that knows schedules. A store says how a generator is driven."""

    async def _run_in_transaction(self, statements: Callable[[], Statements[T]]) -> T:
        """In a transaction of its own."""
        raise NotImplementedError

    async def _run_one_by_one(self, statements: Callable[[], Statements[T]]) -> T:
        """Where nothing is written."""
        raise NotImplementedError

    async def wake(self, message: str) -> None:
        raise NotImplementedError

    def wake_later(self, queues: set[str]) -> None:
        raise NotImplementedError

    # Workers

    async def declare_schedules(self, declared: Mapping[str, Declared]) -> None:
        if declared:
            await self._run_in_transaction(lambda: declaring(declared))

    async def due_schedules(self, names: Iterable[str]) -> list[tuple[str, float]]:
        rows = await self._run_one_by_one(lambda: run("due_schedules", list(names)))
        return [(name, float(wait)) for name, wait in rows]

    async def tick(self, name: str) -> Ticked:
        firing = await self._run_in_transaction(lambda: ticking(name))
        # A job of a tick has a time, and so wakes nobody by itself.
        self.wake_later(firing.queues)
        for job in firing.asked:
            await self.wake(cancel_message(job))
        return firing.ticked

    # Looking

    async def schedules(self, name: str | None = None) -> list[ScheduleRow]:
        return [_row(row) for row in await self._run_one_by_one(lambda: run("schedules", [name]))]

    async def ticks(self, name: str, *, page: int = 50) -> list[TickRow]:
        rows = await self._run_one_by_one(lambda: run("ticks", [{"schedule": name, "page": page}]))
        return [
            TickRow(
                at=_time(at),
                outcome=Outcome(outcome),
                job=None if job is None else uuid_of(job),
                noted_at=_time(noted),
                reason=reason,
            )
            for at, outcome, job, noted, reason in rows
        ]

    # Operators

    async def pause_schedule(self, name: str, *, reason: str | None = None, actor: str | None = None) -> bool:
        return await self._run_in_transaction(lambda: pausing(name, reason, actor))

    async def resume_schedule(self, name: str, *, actor: str | None = None) -> bool:
        return await self._run_in_transaction(lambda: resuming(name, actor))

    async def edit_schedule(self, name: str, edit: Edit, *, actor: str | None = None) -> bool:
        return await self._run_in_transaction(lambda: editing(name, edit, actor))

    async def reset_schedule(self, name: str, *, actor: str | None = None) -> bool:
        return await self._run_in_transaction(lambda: resetting(name, actor))

    async def fire_schedule(self, name: str, *, actor: str | None = None) -> tuple[UUID, bool]:
        return await self._run_in_transaction(lambda: firing_by_hand(name, actor))

    async def forget_schedule(self, name: str, *, actor: str | None = None) -> None:
        await self._run_in_transaction(lambda: forgetting(name, actor))


# Declaring


def declaring(declared: Mapping[str, Declared]) -> Statements[None]:
    """Where a timetable is new, it begins now: nothing before was missed."""
    from windlass.policy.cron import first

    now = _time((yield from run("schedule_clock"))[0][0])
    rows = [
        {"name": name, "declared": each, "next": _micro(first(each.timing, now))}
        for name, each in sorted(declared.items())
    ]
    yield from run("declare_schedules", rows)


# Ticking


class Firing(msgspec.Struct, frozen=True):
    """What a transaction came to, and whom to tell of it after its commit."""

    ticked: Ticked
    queues: set[str] = set()
    asked: tuple[UUID, ...] = ()  # running jobs that were asked to stop


def ticking(name: str) -> Statements[Firing]:
    """One page of what is due: moved on from, fired or left out, and written down."""
    from windlass.policy.cron import due, first

    rows = yield from run("lock_due_schedule", [name])
    if not rows:
        return Firing(Ticked())
    *known, done, set_back = rows[0]
    row = _row(known)
    assert row.next_at is not None
    if set_back:
        # By more than an hour: one of every minute would sleep so long. Its ticks fire again as their time comes again.
        # By less, they are rather late than fired twice (below).
        sooner = min(row.next_at, first(row.timing, row.now) or row.next_at)
        yield from run("set_schedule_back", [{"name": name, "next": _micro(sooner)}])
        return Firing(Ticked(moved=True))
    found = due(row.timing, row.next_at, row.now, row.catch_up)
    moved = yield from run("move_schedule", [{"name": name, "old": _micro(row.next_at), "new": _micro(found.next_at)}])
    if not moved:
        return Firing(Ticked())
    if failpoints.armed:
        failpoints.hit("tick.moved")
    # A clock that was set back comes to ticks again that have been noted.
    fresh = [tick for tick in found.fire if done is None or tick > _time(done)]
    missed = [tick for tick in found.missed if done is None or tick > _time(done)]
    notes = []
    if missed:
        notes.append(_note(name, missed[0], Outcome.MISSED, reason=f"{len(missed):,} tick{'s' * (len(missed) > 1)}"))
    why = f"for {len(missed) + 1:,} missed ticks" if missed else "missed, and made up for"
    fired, asked = yield from _fire(row, fresh, {} if found.caught is None else {found.caught: why})
    if fired or notes:
        yield from run("record_ticks", [*notes, *fired])
    jobs = sum(note["outcome"] == Outcome.FIRED for note in fired)
    ticked = Ticked(fired=jobs, skipped=len(fired) - jobs, missed=len(missed), moved=True)
    return Firing(ticked, {row.job.queue} if jobs else set(), asked)


Note = dict[str, object]


def _fire(
    row: ScheduleRow, ticks: Sequence[datetime], reasons: Mapping[datetime, str]
) -> Statements[tuple[list[Note], tuple[UUID, ...]]]:
    """Enqueue a job for each tick that `overlap` lets through: a note for each, and the jobs asked to stop."""
    left: dict[datetime, str] = {}
    asked: tuple[UUID, ...] = ()
    if ticks and row.overlap is Overlap.SKIP:
        busy = row.last_job is not None and bool((yield from run("lock_job", [row.last_job])))
        left = dict.fromkeys(ticks if busy else ticks[1:], "the last job has not ended")
    elif ticks and row.overlap is Overlap.CANCEL:
        asked = yield from _overtake(row)
        left = dict.fromkeys(ticks[:-1], "overtaken by the next tick")
    jobs = {
        tick: msgspec.structs.replace(row.job, id=new_id(), run_at=tick, delay=None)
        for tick in ticks
        if tick not in left
    }
    holders = yield from _enqueue(list(jobs.values()))
    notes = []
    for tick in ticks:
        job = jobs.get(tick)
        if job is None:
            notes.append(_note(row.name, tick, Outcome.SKIPPED, reason=left[tick]))
        elif job.id in holders:
            notes.append(_note(row.name, tick, Outcome.SKIPPED, holders[job.id], "this job has its unique key"))
        else:
            notes.append(_note(row.name, tick, Outcome.FIRED, job.id, reasons.get(tick)))
    return notes, asked


def _enqueue(jobs: Sequence[NewJob]) -> Statements[Mapping[UUID, UUID]]:
    """The jobs that were not written, and by whom their keys are held; that may be one of these jobs."""
    from windlass.policy.unique import merged

    if not jobs:
        return {}
    fresh, repeated = merged(jobs)
    existing = yield from enqueue_jobs(fresh)
    return {**existing, **{id: existing.get(holder, holder) for id, holder in repeated.items()}}


def _overtake(row: ScheduleRow) -> Statements[tuple[UUID, ...]]:
    """Cancel the last job as an operator would: at once when it does not run, else by asking."""
    if row.last_job is None:
        return ()
    actor = f"schedule:{row.name}"
    found = yield from run("lock_job", [row.last_job])  # waits for whoever ends it now
    if not found:
        return ()
    if found[0][1] == State.RUNNING:
        yield from run("request_cancels", [row.last_job])
        yield from record_job_action(audit.OPERATIONS[Verb.CANCEL], actor, row.last_job)
        return (row.last_job,)
    gone = yield from run("cancel_many", [{"id": row.last_job, "reason": "overtaken by its schedule", "actor": actor}])
    yield from propagate([uuid_of(each[0]) for each in gone])
    return ()


def _note(schedule: str, at: datetime, outcome: Outcome, job: UUID | None = None, reason: str | None = None) -> Note:
    return {"schedule": schedule, "at": _micro(at), "outcome": outcome, "job": job, "reason": reason}


# Operators


def pausing(name: str, reason: str | None, actor: str | None) -> Statements[bool]:
    """Said twice, it changes nothing: the first one's name and reason stay, unless there is another reason."""
    row = yield from _locked(name)
    if row.paused and reason in (None, row.reason):
        return False
    yield from _set(row, paused=True, paused_by=actor, reason=reason)
    yield from record_subject_action(audit.SCHEDULE_PAUSED, actor, f"schedule:{name}", reason)
    return True


def resuming(name: str, actor: str | None) -> Statements[bool]:
    """The ticks of the pause are gone; one time that fell into it is not, and counts as missed."""
    from windlass.policy.cron import first

    row = yield from _locked(name)
    if not row.paused:
        return False
    next_at = None if row.next_at is None else first(row.timing, row.now)
    yield from _set(row, paused=False, paused_by=None, reason=None, next_at=next_at)
    yield from record_subject_action(audit.SCHEDULE_RESUMED, actor, f"schedule:{name}", None)
    return True


def editing(name: str, edit: Edit, actor: str | None) -> Statements[bool]:
    from windlass.policy.cron import changed, first

    row = yield from _locked(name)
    timing = changed(f"schedule {name!r}", row.timing, edit)
    if timing.at is not None and timing != row.timing and timing.at <= row.now:
        raise ScheduleError(
            f"schedule {name!r}: {timing.at} has passed; to fire it now: windlass schedules fire {name}"
        )
    declared = row.declared
    edited = Edited(
        timing=_unlike(timing, declared.timing),
        catch_up=_unlike(edit.catch_up or row.catch_up, declared.catch_up),
        overlap=_unlike(edit.overlap or row.overlap, declared.overlap),
        queue=_unlike(edit.queue or row.job.queue, declared.job.queue),
        priority=_unlike(row.job.priority if edit.priority is None else edit.priority, declared.job.priority),
    )
    kept = None if edited == Edited() else edited
    if kept == row.edited:
        return False
    next_at = row.next_at if timing == row.timing else first(timing, row.now)
    yield from _set(row, edited=kept, edited_by=None if kept is None else actor, next_at=next_at)
    yield from record_subject_action(audit.SCHEDULE_EDITED, actor, f"schedule:{name}", _words(edit))
    return True


def resetting(name: str, actor: str | None) -> Statements[bool]:
    from windlass.policy.cron import first

    row = yield from _locked(name)
    if row.edited is None:
        return False
    own = row.declared.timing
    next_at = row.next_at if row.timing == own else first(own, row.now)
    yield from _set(row, edited=None, edited_by=None, next_at=next_at)
    yield from record_subject_action(audit.SCHEDULE_RESET, actor, f"schedule:{name}", None)
    return True


def firing_by_hand(name: str, actor: str | None) -> Statements[tuple[UUID, bool]]:
    """No tick: nothing is moved, and neither a pause nor a job that runs is in its way."""
    row = yield from _locked(name)
    job = msgspec.structs.replace(row.job, id=new_id())
    holder = (yield from _enqueue([job])).get(job.id)
    reason = None if holder is None else "this job has its unique key"
    yield from run("record_ticks", [_note(name, row.now, Outcome.BY_HAND, holder or job.id, reason)])
    yield from record_subject_action(audit.SCHEDULE_FIRED, actor, f"schedule:{name}", f"job {holder or job.id}")
    return holder or job.id, holder is not None


def forgetting(name: str, actor: str | None) -> Statements[None]:
    yield from _locked(name)
    yield from run("delete_schedule", [name])
    yield from record_subject_action(audit.SCHEDULE_FORGOTTEN, actor, f"schedule:{name}", None)


def _locked(name: str) -> Statements[ScheduleRow]:
    rows = yield from run("lock_schedule", [name])
    if rows:
        return _row(rows[0])
    raise not_found(name, [row[0] for row in (yield from run("schedules", [None]))])


def not_found(name: str, known: Iterable[str]) -> ScheduleNotFound:
    others = dict.fromkeys(known)
    if others:
        return ScheduleNotFound(f"there is no schedule {name!r}{suggest(name, others)}")
    return ScheduleNotFound(
        f"there is no schedule {name!r}, nor any other: declare it with app.schedule({name!r}, …), and start a worker"
    )


def _set(row: ScheduleRow, **changes: Any) -> Statements[None]:
    new = msgspec.structs.replace(row, **changes)
    kept = ("name", "edited", "edited_by", "paused", "paused_by", "reason")
    yield from run("set_schedule", [{name: getattr(new, name) for name in kept} | {"next": _micro(new.next_at)}])


V = TypeVar("V")


def _unlike(value: V, declared: V) -> V | None:
    """What differs from the code's; what does not is no edit."""
    return None if value == declared else value


def _words(edit: Edit) -> str:
    values = {name: getattr(edit, name) for name in edit.__struct_fields__}
    if edit.every is not None:
        values["every"] = spell(edit.every)
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


# Rows


def _row(row: Sequence[Any]) -> ScheduleRow:
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
        paused_at=None if paused_at is None else _time(paused_at),
        reason=reason,
        next_at=None if next_at is None else _time(next_at),
        last_at=None if last_at is None else _time(last_at),
        last_job=None if last_job is None else uuid_of(last_job),
        now=_time(now),
    )


def _time(micro: int) -> datetime:
    return EPOCH + micro * MICROSECOND


def _micro(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - EPOCH) // MICROSECOND

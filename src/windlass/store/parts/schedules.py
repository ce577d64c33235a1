"""Schedules, written once for both stores: their declaration and the operations on them; `ticks.py` fires them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from windlass.clock import spell
from windlass.config import suggest
from windlass.errors import ScheduleError, ScheduleNotFound
from windlass.model import audit
from windlass.model.job import new_id
from windlass.model.schedule import Declared, Edit, Edited, ScheduleRow, Ticked, TickOutcome, TickRow
from windlass.store.parts.admission import record_subject_action
from windlass.store.parts.messages import cancel_message
from windlass.store.parts.statements import Statements, run, uuid_of
from windlass.store.parts.ticks import (
    KEY_IS_HELD,
    enqueue_new,
    micros_of,
    schedule_row,
    tick_page,
    tick_record,
    time_of,
)

T = TypeVar("T")


class SchedulesPart:
    """The part of a store that keeps schedules. The store supplies how statements are run."""

    async def _run_in_transaction(self, statements: Callable[[], Statements[T]]) -> T:
        """Run the statements in a transaction of their own."""
        raise NotImplementedError

    async def _run_one_by_one(self, statements: Callable[[], Statements[T]]) -> T:
        """Run statements that only read."""
        raise NotImplementedError

    async def wake(self, message: str) -> None:
        raise NotImplementedError

    def wake_later(self, queues: set[str]) -> None:
        raise NotImplementedError

    # Workers

    async def declare_schedules(self, declared: Mapping[str, Declared]) -> None:
        if declared:
            await self._run_in_transaction(lambda: declare(declared))

    async def due_schedules(self, names: Iterable[str]) -> list[tuple[str, float]]:
        rows = await self._run_one_by_one(lambda: run("due_schedules", list(names)))
        return [(name, float(wait)) for name, wait in rows]

    async def tick(self, name: str) -> Ticked:
        result = await self._run_in_transaction(lambda: tick_page(name))
        # The job of a tick has a run_at, so that its enqueue wakes no worker.
        self.wake_later(result.queues)
        for job in result.asked:
            await self.wake(cancel_message(job))
        return result.ticked

    # Reads

    async def schedules(self, name: str | None = None) -> list[ScheduleRow]:
        return [schedule_row(row) for row in await self._run_one_by_one(lambda: run("schedules", [name]))]

    async def ticks(self, name: str, *, page: int = 50) -> list[TickRow]:
        rows = await self._run_one_by_one(lambda: run("ticks", [{"schedule": name, "page": page}]))
        return [
            TickRow(
                at=time_of(at),
                outcome=TickOutcome(outcome),
                job=None if job is None else uuid_of(job),
                noted_at=time_of(noted),
                reason=reason,
            )
            for at, outcome, job, noted, reason in rows
        ]

    # Operators

    async def pause_schedule(self, name: str, *, reason: str | None = None, actor: str | None = None) -> bool:
        return await self._run_in_transaction(lambda: pause(name, reason, actor))

    async def resume_schedule(self, name: str, *, actor: str | None = None) -> bool:
        return await self._run_in_transaction(lambda: resume(name, actor))

    async def edit_schedule(self, name: str, edit: Edit, *, actor: str | None = None) -> bool:
        return await self._run_in_transaction(lambda: edit_schedule(name, edit, actor))

    async def reset_schedule(self, name: str, *, actor: str | None = None) -> bool:
        return await self._run_in_transaction(lambda: reset(name, actor))

    async def fire_schedule(self, name: str, *, actor: str | None = None) -> tuple[UUID, bool]:
        return await self._run_in_transaction(lambda: fire_now(name, actor))

    async def forget_schedule(self, name: str, *, actor: str | None = None) -> None:
        await self._run_in_transaction(lambda: forget(name, actor))


# Declarations


def declare(declared: Mapping[str, Declared]) -> Statements[None]:
    """Write a program's schedules. A new timetable begins now: it has missed nothing before."""
    from windlass.policy.cron import first

    now = time_of((yield from run("schedule_clock"))[0][0])
    rows = [
        {"name": name, "declared": each, "next": micros_of(first(each.timing, now))}
        for name, each in sorted(declared.items())
    ]
    yield from run("declare_schedules", rows)


# Operators


def pause(name: str, reason: str | None, actor: str | None) -> Statements[bool]:
    """A second pause changes nothing: the first actor and reason stay, unless another reason is given."""
    row = yield from _lock(name)
    if row.paused and reason in (None, row.reason):
        return False
    yield from _set(row, paused=True, paused_by=actor, reason=reason)
    yield from record_subject_action(audit.SCHEDULE_PAUSED, actor, f"schedule:{name}", reason)
    return True


def resume(name: str, actor: str | None) -> Statements[bool]:
    """Ticks that fell into the pause are dropped. A one-time schedule that fell into it still counts as missed."""
    from windlass.policy.cron import first

    row = yield from _lock(name)
    if not row.paused:
        return False
    next_at = None if row.next_at is None else first(row.timing, row.now)
    yield from _set(row, paused=False, paused_by=None, reason=None, next_at=next_at)
    yield from record_subject_action(audit.SCHEDULE_RESUMED, actor, f"schedule:{name}", None)
    return True


def edit_schedule(name: str, edit: Edit, actor: str | None) -> Statements[bool]:
    from windlass.policy.cron import apply_edit, first

    row = yield from _lock(name)
    timing = apply_edit(f"schedule {name!r}", row.timing, edit)
    if timing.at is not None and timing != row.timing and timing.at <= row.now:
        raise ScheduleError(
            f"schedule {name!r}: {timing.at} has passed; to fire it now: windlass schedules fire {name}"
        )
    declared = row.declared
    edited = Edited(
        timing=_difference(timing, declared.timing),
        catch_up=_difference(edit.catch_up or row.catch_up, declared.catch_up),
        overlap=_difference(edit.overlap or row.overlap, declared.overlap),
        queue=_difference(edit.queue or row.job.queue, declared.job.queue),
        priority=_difference(row.job.priority if edit.priority is None else edit.priority, declared.job.priority),
    )
    kept = None if edited == Edited() else edited
    if kept == row.edited:
        return False
    next_at = row.next_at if timing == row.timing else first(timing, row.now)
    yield from _set(row, edited=kept, edited_by=None if kept is None else actor, next_at=next_at)
    yield from record_subject_action(audit.SCHEDULE_EDITED, actor, f"schedule:{name}", _describe(edit))
    return True


def reset(name: str, actor: str | None) -> Statements[bool]:
    from windlass.policy.cron import first

    row = yield from _lock(name)
    if row.edited is None:
        return False
    own = row.declared.timing
    next_at = row.next_at if row.timing == own else first(own, row.now)
    yield from _set(row, edited=None, edited_by=None, next_at=next_at)
    yield from record_subject_action(audit.SCHEDULE_RESET, actor, f"schedule:{name}", None)
    return True


def fire_now(name: str, actor: str | None) -> Statements[tuple[UUID, bool]]:
    """Enqueue a job now. It is no tick: `next_at` stays, and neither a pause nor a running job prevents it."""
    row = yield from _lock(name)
    job = msgspec.structs.replace(row.job, id=new_id())
    holder = (yield from enqueue_new([job])).get(job.id)
    reason = None if holder is None else KEY_IS_HELD
    yield from run("record_ticks", [tick_record(name, row.now, TickOutcome.BY_HAND, holder or job.id, reason)])
    yield from record_subject_action(audit.SCHEDULE_FIRED, actor, f"schedule:{name}", f"job {holder or job.id}")
    return holder or job.id, holder is not None


def forget(name: str, actor: str | None) -> Statements[None]:
    yield from _lock(name)
    yield from run("delete_schedule", [name])
    yield from record_subject_action(audit.SCHEDULE_FORGOTTEN, actor, f"schedule:{name}", None)


def _lock(name: str) -> Statements[ScheduleRow]:
    rows = yield from run("lock_schedule", [name])
    if rows:
        return schedule_row(rows[0])
    raise not_found(name, [row[0] for row in (yield from run("schedules", [None]))])


def not_found(name: str, known: Iterable[str]) -> ScheduleNotFound:
    others = dict.fromkeys(known)
    if others:
        return ScheduleNotFound(f"there is no schedule {name!r}{suggest(name, others)} (list them: windlass schedules)")
    return ScheduleNotFound(
        f"there is no schedule {name!r}, nor any other: declare it with app.schedule({name!r}, …), and start a worker"
    )


def _set(row: ScheduleRow, **changes: Any) -> Statements[None]:
    new = msgspec.structs.replace(row, **changes)
    kept = ("name", "edited", "edited_by", "paused", "paused_by", "reason")
    yield from run("set_schedule", [{name: getattr(new, name) for name in kept} | {"next": micros_of(new.next_at)}])


V = TypeVar("V")


def _difference(value: V, declared: V) -> V | None:
    """The edited value, or None where it equals the declared one."""
    return None if value == declared else value


def _describe(edit: Edit) -> str:
    values = {name: getattr(edit, name) for name in edit.__struct_fields__}
    if edit.every is not None:
        values["every"] = spell(edit.every)
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)

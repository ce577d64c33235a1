"""Helpers for the tests of schedules: a declared one, its next tick, and what became of its ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.model.filter import parse
from windlass.model.job import NewJob
from windlass.model.schedule import TEMPLATE_ID, CatchUp, Declared, Overlap, ScheduleRow, Ticked, Timing

from .rig import TYPE

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from windlass.model.job import Job

    from .rig import Rig

MINUTE = 60.0
EVERY_MINUTE = Timing(every=MINUTE)
HOURLY = Timing(cron="0 * * * *")
FIRED = Ticked(fired=1, moved=True)
NOTHING = Ticked()


def declared(timing: Timing = EVERY_MINUTE, *, catch_up: str = "one", overlap: str = "allow", **job: Any) -> Declared:
    defaults: dict[str, Any] = {"id": TEMPLATE_ID, "type": TYPE, "input": '{"n":1}'}
    template = NewJob(**(defaults | job))
    return Declared(timing=timing, catch_up=CatchUp(catch_up), overlap=Overlap(overlap), job=template)


async def declare(rig: Rig, timing: Timing = EVERY_MINUTE, **options: Any) -> ScheduleRow:
    await rig.store.declare_schedules({"nightly": declared(timing, **options)})
    return await known(rig)


async def known(rig: Rig) -> ScheduleRow:
    (row,) = await rig.store.schedules("nightly")
    return row


async def to_next(rig: Rig, late: float = 0.0) -> datetime:
    """Move the time to the next tick, or a little beyond it."""
    next_at = (await known(rig)).next_at
    assert next_at is not None
    await rig.advance((next_at - rig.clock.now()).total_seconds() + late)
    return next_at


async def fired(rig: Rig) -> list[Job]:
    """Every job there is, as its tick comes: the stories enqueue no others."""
    return sorted(await rig.store.search(parse(""), page=1_000), key=lambda job: job.run_at)


async def outcomes(rig: Rig) -> list[str]:
    return [tick.outcome.value for tick in reversed(await rig.store.ticks("nightly"))]


async def overlapping(rig: Rig, overlap: str, **options: Any) -> UUID:
    """A schedule with its first job still queued; the next tick has come."""
    await declare(rig, overlap=overlap, **options)
    await to_next(rig)
    assert await rig.store.tick("nightly") == FIRED
    (job,) = await fired(rig)
    await to_next(rig)
    return job.id

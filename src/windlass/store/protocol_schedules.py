"""The schedules of a store. `store/parts/schedules.py` implements this once for both stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol
from uuid import UUID

from windlass.model.schedule import Declared, Edit, ScheduleRow, Ticked, TickRow


class ScheduleStore(Protocol):
    """Jobs enqueued by a timetable. An operation on a schedule that was never declared raises ScheduleNotFound."""

    async def declare_schedules(self, declared: Mapping[str, Declared]) -> None:
        """Write a program's schedules; the last declaration of a name counts.

        The next tick moves only where the timetable changed and has no operator's edit.
        """
        ...

    async def due_schedules(self, names: Iterable[str]) -> list[tuple[str, float]]:
        """The seconds until each of these ticks, the nearest first; without paused ones and those that have ended."""
        ...

    async def tick(self, name: str) -> Ticked:
        """Fire the due ticks of a schedule by its policies, at most a page of them; each tick fires once."""
        ...

    async def schedules(self, name: str | None = None) -> list[ScheduleRow]:
        """All of them in the order of their names, or the one of this name."""
        ...

    async def ticks(self, name: str, *, page: int = 50) -> list[TickRow]:
        """What became of the last ticks of a schedule, and of jobs fired by an operator, newest first."""
        ...

    async def pause_schedule(self, name: str, *, reason: str | None = None, actor: str | None = None) -> bool:
        """No tick fires until it is resumed; False where it was paused already, and no other reason is given."""
        ...

    async def resume_schedule(self, name: str, *, actor: str | None = None) -> bool:
        """Go on with the next tick from now; False where it was not paused."""
        ...

    async def edit_schedule(self, name: str, edit: Edit, *, actor: str | None = None) -> bool:
        """Replace declared values by edited ones; a new timetable begins now. Raises ScheduleError.

        False where nothing changed.
        """
        ...

    async def reset_schedule(self, name: str, *, actor: str | None = None) -> bool:
        """Drop every edit; False where there was none."""
        ...

    async def fire_schedule(self, name: str, *, actor: str | None = None) -> tuple[UUID, bool]:
        """Enqueue its job now, beside its ticks; returns the job, and whether it existed already and holds the key."""
        ...

    async def forget_schedule(self, name: str, *, actor: str | None = None) -> None:
        """Delete a schedule that no program declares any more; a declared one is written again by the next worker."""
        ...

"""What is asked of a store about schedules. `store/parts/schedules.py` answers it once for both of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol
from uuid import UUID

from windlass.model.schedule import Declared, Edit, ScheduleRow, Ticked, TickRow


class ScheduleStore(Protocol):
    """Jobs that come by themselves. Whoever acts on a schedule that nobody declared raises ScheduleNotFound."""

    async def declare_schedules(self, declared: Mapping[str, Declared]) -> None:
        """Make a program's schedules known: the last to declare a name is right.

        The next tick moves only where the timetable changed and nobody edited it.
        """
        ...

    async def due_schedules(self, names: Iterable[str]) -> list[tuple[str, float]]:
        """The seconds until each of these ticks, the first first; without those that are paused or never tick again."""
        ...

    async def tick(self, name: str) -> Ticked:
        """Fire what is due of a schedule, as its policies say, at most a page of it: each tick once, whoever asks."""
        ...

    async def schedules(self, name: str | None = None) -> list[ScheduleRow]:
        """All of them in the order of their names, or the one of this name."""
        ...

    async def ticks(self, name: str, *, page: int = 50) -> list[TickRow]:
        """What became of the last ticks of a schedule, and of fires by hand, newest first."""
        ...

    async def pause_schedule(self, name: str, *, reason: str | None = None, actor: str | None = None) -> bool:
        """No tick fires until it is resumed; False where it was paused already, and no other reason is given."""
        ...

    async def resume_schedule(self, name: str, *, actor: str | None = None) -> bool:
        """Go on with the next tick from now; False where it was not paused."""
        ...

    async def edit_schedule(self, name: str, edit: Edit, *, actor: str | None = None) -> bool:
        """Lay an edit over what is declared; a new timetable goes on from now. Raises ScheduleError.

        False where it was so already.
        """
        ...

    async def reset_schedule(self, name: str, *, actor: str | None = None) -> bool:
        """Forget every edit; False where there was none."""
        ...

    async def fire_schedule(self, name: str, *, actor: str | None = None) -> tuple[UUID, bool]:
        """Enqueue a job of it now, whatever its ticks do: the job, and whether it was there and held the key."""
        ...

    async def forget_schedule(self, name: str, *, actor: str | None = None) -> None:
        """Forget a schedule that no program declares any more; one that is declared comes back with its worker."""
        ...

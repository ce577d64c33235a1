"""Waiting for jobs: one statement reads the states of all jobs that any request of this server waits for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from windlass.errors import StoreError
from windlass.model.state import FINAL

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.model.rows import JobState

EVERY = 0.1  # seconds between two reads, at least
SHARE = 10  # the pause is at least this many times as long as the read was
AT_ONCE = 1_000  # jobs per read


class Watched:
    """A job that requests wait for: what was read of it last, and how many requests wait."""

    def __init__(self) -> None:
        self.requests = 0
        self.state: JobState | None = None
        self.known = False  # whether it was read at all; then None means: there is no such job
        self.changed = asyncio.Event()

    def learn(self, state: JobState | None) -> None:
        if not self.known or state != self.state:
            self.known, self.state = True, state
            self.changed.set()
            self.changed = asyncio.Event()  # for the next change


class Awaited:
    """The jobs that requests wait for. While there is one, a task reads their states; requests share it."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._watched: dict[UUID, Watched] = {}
        self._task: asyncio.Task[None] | None = None

    async def until_ended(self, id: UUID, timeout: float) -> None:
        """Return when the job has ended or is gone, and after `timeout` seconds in any case."""
        with self.watch(id) as watched:
            try:
                async with asyncio.timeout(timeout):
                    while not watched.known or (watched.state is not None and watched.state.state not in FINAL):
                        await watched.changed.wait()
            except TimeoutError:
                pass

    def watch(self, id: UUID) -> Watching:
        """Read the state of a job as long as the block lasts: `with awaited.watch(id) as watched: …`."""
        return Watching(self, id)

    def _enter(self, id: UUID) -> Watched:
        watched = self._watched.setdefault(id, Watched())
        watched.requests += 1
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._read_on(), name="windlass-web-awaited")
        return watched

    def _leave(self, id: UUID) -> None:
        watched = self._watched[id]
        watched.requests -= 1
        if not watched.requests:
            del self._watched[id]

    async def _read_on(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._watched:
            begin, ids = clock(), list(self._watched)
            for start in range(0, len(ids), AT_ONCE):
                await self._read(ids[start : start + AT_ONCE])
            await asyncio.sleep(max(EVERY, SHARE * (clock() - begin)))

    async def _read(self, ids: list[UUID]) -> None:
        try:
            found = await self._app.astates(ids)
        except StoreError:  # the database is away: the requests wait on, to their own limits
            return
        for id in ids:
            if id in self._watched:
                self._watched[id].learn(found.get(id))


class Watching:
    """A block in which a job is watched."""

    def __init__(self, awaited: Awaited, id: UUID) -> None:
        self._awaited = awaited
        self._id = id

    def __enter__(self) -> Watched:
        return self._awaited._enter(self._id)

    def __exit__(self, *error: object) -> None:
        self._awaited._leave(self._id)

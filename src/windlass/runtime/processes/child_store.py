"""The store of a child process, which most handlers never need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from windlass.clock import SystemClock
from windlass.config import Settings
from windlass.model.admission import Grant
from windlass.model.flow import Linked, Memory, Recollection
from windlass.model.job import Job, Lease
from windlass.store import make_store
from windlass.store.protocol import Store, Transaction


class ChildStore:
    """The child's store, opened when a handler first begins a transaction, remembers a step, takes a token or reads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.with_(connections=1)  # one attempt, one transaction at a time
        self._store: Store | None = None
        self._opening = asyncio.Lock()

    async def opened(self) -> Store:
        async with self._opening:
            if self._store is None:
                store = make_store(self._settings, SystemClock())
                await store.open()
                self._store = store
            return self._store

    @asynccontextmanager
    async def transaction(self, *, limit: float) -> AsyncIterator[Transaction]:
        store = await self.opened()
        async with store.transaction(limit=limit) as transaction:
            yield transaction

    async def recall(self, job: UUID) -> Recollection:
        return await (await self.opened()).recall(job)

    async def links(self, job: UUID) -> list[Linked]:
        return await (await self.opened()).links(job)

    async def find_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        return await (await self.opened()).find_many(jobs)

    async def remember(self, lease: Lease, memory: Memory) -> bool:
        return await (await self.opened()).remember(lease, memory)

    async def acquire(self, bucket: str, *, most: float) -> Grant:
        return await (await self.opened()).acquire(bucket, most=most)

    async def hold_back(self, bucket: str, seconds: float) -> None:
        await (await self.opened()).hold_back(bucket, seconds)

    async def held_for(self, bucket: str) -> float:
        return await (await self.opened()).held_for(bucket)

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

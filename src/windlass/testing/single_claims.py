"""The claims of a harness's workers: one job at a time, and on demand a certain one.

A claim names types and queues, not jobs. For a certain job the ones before it are claimed too and released unstarted,
as a stopping worker does. Claims take turns, so that none misses a job that is only held for a moment.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec

from windlass.client import Client
from windlass.model.admission import Grant
from windlass.model.job import Job
from windlass.model.state import CLAIMABLE
from windlass.runtime.claims.demand import LARGEST_CLAIM
from windlass.runtime.leases import release_unstarted
from windlass.store import dialect_of
from windlass.store.protocol import Claim, Claimed, Store

PATIENCE = 10.0  # seconds for one statement


class SingleClaims:
    """One per harness, for workers on any loop. Claims are made on the client's own store."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def claim(self, claim: Claim, wanted: UUID | None) -> Claimed:
        """The next job, or the wanted one; nothing when it cannot be claimed now."""
        return await self._client.aask(lambda store: self._take(store, claim, wanted))

    async def lift_limits(self, job: UUID) -> None:
        """From now on this job counts against nothing."""
        await self._client.aask(lambda store: self._lift(store, job))

    async def _lift(self, store: Store, job: UUID) -> None:
        found = await store.find(job)
        if found is None or not found.limits or found.status not in CLAIMABLE:
            return  # one that runs holds its slots until it ends
        sqlite = dialect_of(self._client.settings.url) == "sqlite"
        table, id = ("windlass_jobs", str(job)) if sqlite else ("windlass.jobs", job)
        async with store.transaction(limit=PATIENCE) as transaction:
            await transaction.execute(f"UPDATE {table} SET limits = NULL, parked_on = NULL WHERE id = $1", id)
            await transaction.commit()

    async def _take(self, store: Store, claim: Claim, wanted: UUID | None) -> Claimed:
        turns = self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        async with turns:
            claimed = await store.claim(msgspec.structs.replace(claim, room=1))
            if wanted is None or not claimed.jobs or claimed.jobs[0].id == wanted:
                return claimed
            return await self._claim_until(store, claim, wanted, claimed.jobs)

    async def _claim_until(self, store: Store, claim: Claim, wanted: UUID, held: list[Job]) -> Claimed:
        """Claim on until the wanted job comes, then release the others."""
        found: list[Job] = []
        try:
            while not found:
                claimed = await store.claim(msgspec.structs.replace(claim, room=LARGEST_CLAIM))
                found = [job for job in claimed.jobs if job.id == wanted]
                held += [job for job in claimed.jobs if job.id != wanted]
                if not claimed.jobs:
                    break
        finally:
            await store.finish([release_unstarted(job) for job in held])
        return Claimed(jobs=found)


class SingleClaimsStore:
    """A worker's own store, except that claims go through `SingleClaims`, and that no token is waited for."""

    def __init__(self, store: Store, claims: SingleClaims, *, limited: bool) -> None:
        self._store = store
        self._claims = claims
        self._limited = limited  # else a wanted job runs whatever its limits are
        self.wanted: UUID | None = None
        self.taken: list[Job] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, claim: Claim) -> Claimed:
        if self.taken:
            return Claimed(jobs=[])  # one job in a round, whatever else the round asks for
        if not self._limited and self.wanted is not None:
            await self._claims.lift_limits(self.wanted)
            claim = msgspec.structs.replace(claim, rescan=True)  # it is in another lane now
        claimed = await self._claims.claim(claim, self.wanted)
        self.taken += claimed.jobs
        return claimed

    async def acquire(self, bucket: str, *, most: float) -> Grant:
        """A token that a handler would wait a moment for is there at once: no test moves the clock while it sleeps."""
        grant = await self._store.acquire(bucket, most=most)
        return Grant(granted=True, wait=0.0) if grant.granted else grant

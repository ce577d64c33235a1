"""Stores that are wrong on purpose, each in one place. The machine must catch every one of them."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import msgspec

from windlass.errors import StoreError
from windlass.model.job import Lease
from windlass.store.postgres.store import PostgresStore
from windlass.store.sqlite import sweep
from windlass.store.sqlite.session import Runner
from windlass.store.sqlite.store import SqliteStore
from windlass.store.sqlite.transaction import SqliteTransaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Collection, Sequence

    from windlass.model.outcome import Transition
    from windlass.model.state import State
    from windlass.store.parts.rescue import CrashRules
    from windlass.store.protocol import Claim, Claimed, Finished, Swept


class UnfencedFinish(SqliteStore):
    """Finishes by id: any lease is taken for the current one."""

    async def finish(self, transitions: Sequence[Transition]) -> Finished:
        return await super().finish([await self._trusted(each) for each in transitions])

    async def _trusted(self, transition: Transition) -> Transition:
        job = await self.find(transition.job)
        if job is None or job.token is None:
            return transition
        return msgspec.structs.replace(transition, lease=job.lease)


class UnfencedTransaction(SqliteStore):
    """ctx.transaction() finishes by id, and never reports that the lease is lost: an effect can be committed twice."""

    @asynccontextmanager
    async def transaction(self, *, limit: float) -> AsyncIterator[SqliteTransaction]:
        async with super().transaction(limit=limit) as transaction:
            transaction.__class__ = _Believer
            yield transaction


class _Believer(SqliteTransaction):
    async def finish(self, transition: Transition) -> bool:
        found = await self.fetch("SELECT token, fence FROM windlass_jobs WHERE id = $1", transition.job)
        if found and found[0]["token"] is not None:
            lease = Lease(transition.job, UUID(found[0]["token"]), found[0]["fence"])
            transition = msgspec.structs.replace(transition, lease=lease)
        await super().finish(transition)
        return True


class LeakyTransaction(SqliteStore):
    """A block that commits what it should have undone."""

    @asynccontextmanager
    async def transaction(self, *, limit: float) -> AsyncIterator[SqliteTransaction]:
        async with super().transaction(limit=limit) as transaction:
            yield transaction
            with suppress(StoreError):  # it was ended already
                await transaction.commit()


class CarelessRescue(SqliteStore):
    """Gives every running job back, whether its worker is alive or not."""

    async def _rescue(self, rules: CrashRules, page: int, jobs: Collection[UUID], *, only: bool) -> list[State]:
        def rescue(runner: Runner, connection: sqlite3.Connection, now: int) -> list[State]:
            living = connection.execute("SELECT id FROM windlass_workers WHERE NOT dead").fetchall()
            connection.execute("UPDATE windlass_workers SET dead = 1")
            rescued = sweep.rescue(runner, connection, now, rules, 1_000, jobs, only=only)
            connection.executemany("UPDATE windlass_workers SET dead = 0 WHERE id = ?", living)
            return rescued

        return await self._transact(rescue)


class SharedClaim(SqliteStore):
    """Where nothing else is due, leases a job that another worker holds."""

    async def claim(self, claim: Claim) -> Claimed:
        token = str(uuid4())

        def steal(connection: sqlite3.Connection, now: int) -> None:
            connection.execute(
                "UPDATE windlass_jobs SET token = ?, worker = ?, fence = fence + 1, attempt = attempt + 1 WHERE id ="
                " (SELECT id FROM windlass_jobs WHERE status = 'running' AND worker <> ? ORDER BY id LIMIT 1)",
                (token, str(claim.worker), str(claim.worker)),
            )

        if (claimed := await super().claim(claim)).jobs:
            return claimed
        await self._write(steal)
        stolen = [await self.find(job) for job in await self._held_under(token)]
        return msgspec.structs.replace(claimed, jobs=stolen)

    async def _held_under(self, token: str) -> list[UUID]:
        find = "SELECT id FROM windlass_jobs WHERE token = ?"
        return await self._read(
            lambda connection, now: [UUID(ident) for (ident,) in connection.execute(find, (token,))]
        )


class ForgetfulSweep(SqliteStore):
    """Throws away the jobs that died instead of keeping them for an operator."""

    async def sweep(self, **rules: Any) -> Swept:
        swept = await super().sweep(**rules)
        await self._write(lambda connection, now: connection.execute("DELETE FROM windlass_jobs WHERE status = 'dead'"))
        return swept


class FloorWithoutRescan(PostgresStore):
    """Scans the lanes and never goes below its floors: what commits late stays unseen."""

    async def claim(self, claim: Claim) -> Claimed:
        next_due = await self._scan_lanes(claim) if claim.rescan else None
        claimed = await super().claim(msgspec.structs.replace(claim, rescan=False))
        return msgspec.structs.replace(claimed, next_due=next_due)

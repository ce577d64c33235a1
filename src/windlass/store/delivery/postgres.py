"""Delivery on PostgreSQL: the outbox is leased by one statement, and a delivered batch is claimed by one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from windlass import failpoints
from windlass.clock import Clock
from windlass.errors import StoreBusy, StoreError, StoreRefused, StoreUnavailable
from windlass.model.delivery import (
    DeliveredClaim,
    DeliveryMode,
    LeasedOutbox,
    OutboxKind,
    OutboxRow,
    RefusalReason,
)
from windlass.model.job import Job
from windlass.store.delivery.undelivered import UndeliveredPart
from windlass.store.postgres import rows
from windlass.store.postgres.claim import ROUNDS, PostgresClaims
from windlass.store.postgres.connections.pool import ConnectionPool
from windlass.store.protocol import Claim
from windlass.store.sql import query

CLEAR_PAGE = 5_000  # rows per statement
SET_WITHIN = 60.0  # seconds for which `set_delivery` tries to lock the table of jobs
SET_PAUSE = 0.5  # seconds between two tries on average: writers that queued behind one go on meanwhile


class PostgresDelivery(PostgresClaims, UndeliveredPart):
    """The part of the store that delivers."""

    def __init__(self, pool: ConnectionPool, clock: Clock) -> None:
        super().__init__(pool, clock)
        self._delivers_limited = False  # the last batch had jobs with limits: the next one begins with their statement

    async def delivery(self) -> DeliveryMode | None:
        mode = await self._value(query("postgres", "delivery"))
        return None if mode is None else DeliveryMode(mode)

    async def set_delivery(self, mode: DeliveryMode | None) -> bool:
        changed = await self.delivery() != mode and await self._try_to_set(mode)
        if mode is None:  # also where it was None: the process that set it may have died before this
            while len(await self._fetch(query("postgres", "clear_outbox"), CLEAR_PAGE)) == CLEAR_PAGE:
                pass
        return changed

    async def _try_to_set(self, mode: DeliveryMode | None) -> bool:
        """Make or drop the triggers, in short tries.

        Both wait until every transaction that wrote jobs has ended, and every writer that comes later waits behind
        them. So a try gives up after a moment, and the writers go on before the next one.
        """
        until = self.clock.monotonic() + SET_WITHIN
        while True:
            try:
                return await self._pool.transact(lambda connection: _set_mode(connection, mode))
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                    raise
                if self.clock.monotonic() > until:
                    raise StoreBusy(
                        f"the delivery could not be set: for {SET_WITHIN:g} s there was always a transaction that "
                        "writes jobs; find a long one with `windlass doctor`, end it, and try again"
                    ) from error
            except StoreRefused as error:
                if not isinstance(error.__cause__, asyncpg.InsufficientPrivilegeError):
                    raise
                command = "setup" if mode is not None else "off"
                raise StoreRefused(
                    "only the owner of the schema may make and drop the triggers that write the outbox; run once, with "
                    f"the owner's URL: windlass broker {command} app.py"
                ) from error
            await asyncio.sleep(random.uniform(0.5, 1.5) * SET_PAUSE)

    async def lease_outbox(self, most: int, lease: float) -> LeasedOutbox:
        records = await self._fetch(query("postgres", "lease_outbox"), most, lease)
        found, dropped, next_in = records[0]["found"], records[0]["dropped"], records[0]["next_in"]
        leased = [_row(record) for record in records if record["id"] is not None]
        if found == most:
            next_in = None if len(leased) == most else 0.0
        return LeasedOutbox(rows=leased, dropped=dropped, next_due=None if next_in is None else max(0.0, next_in))

    # Claims of delivered jobs

    async def claim_delivered(self, claim: Claim, jobs: Sequence[UUID]) -> DeliveredClaim:
        wanted = list(dict.fromkeys(jobs))
        if not wanted:
            return DeliveredClaim(jobs=[], refused={})
        if failpoints.armed:
            failpoints.hit("claim.before")
        claimed = await self._claim_named(claim, wanted)
        if failpoints.armed:
            failpoints.hit("claim.committed")
        held = {job.id for job in claimed}
        rest = [job for job in wanted if job not in held]
        refused = await self._refuse(claim, rest, some_claimed=bool(claimed)) if rest else {}
        in_order = sorted(claimed, key=rows.claim_order)
        return DeliveredClaim(jobs=in_order, refused=refused, next_token=self._soonest(None, busy=False))

    async def _claim_named(self, claim: Claim, wanted: Sequence[UUID]) -> list[Job]:
        """Lease the jobs that may be claimed. No floor and no tenant's share moves: no lane was read."""
        found: list[Job] = []
        token, left = uuid4(), list(wanted)
        about = (claim.types, claim.queues, claim.suspects.value)
        if not self._delivers_limited:
            records = await self._fetch(query("postgres", "claim_delivered"), claim.worker, left, token, *about)
            found, left = [rows.job(record) for record in records if record["id"] is not None], records[0]["limited"]
            self._delivers_limited = bool(left)
        for _ in range(ROUNDS if left else 0):
            records = await self._fetch(query("postgres", "claim_delivered_limited"), claim.worker, left, token, *about)
            found += [rows.job(record) for record in records if record["id"] is not None]
            self._expect_token(records[0]["token_in"])
            self._delivers_limited = any(job.limits for job in found) or records[0]["refused"] > 0
            unknown = records[0]["unknown"]
            if not unknown:
                break
            await self._create_counters(unknown)
            held = {job.id for job in found}
            left = [job for job in left if job not in held]
        return found

    async def _refuse(self, claim: Claim, jobs: list[UUID], *, some_claimed: bool) -> dict[UUID, RefusalReason]:
        """Why these jobs were not claimed. Those that can be claimed later are in the outbox again."""
        try:
            records = await self._fetch(
                query("postgres", "refuse_delivered"), jobs, claim.types, claim.queues, claim.suspects.value
            )
        except StoreError:
            if not some_claimed:
                raise
            # The others are leased, and their worker must learn of it. These are found by its poll for overdue jobs.
            return dict.fromkeys(jobs, RefusalReason.BUSY)
        return {record["id"]: RefusalReason(record["reason"]) for record in records}

    async def _lanes_of_jobs(self) -> Sequence[Mapping[str, object]]:
        return [dict(record) for record in await self._fetch(query("postgres", "lanes_of_jobs"))]

    # The outbox, settled

    async def settle_outbox(self, sent: Collection[int], unsent: Collection[int], *, delay: float = 0.0) -> None:
        await self._execute(query("postgres", "settle_outbox"), list(sent), list(unsent), delay)

    async def outbox_size(self, most: int) -> tuple[int, float | None]:
        (record,) = await self._fetch(query("postgres", "outbox_size"), most)
        return record[0], record[1]


async def _set_mode(connection: Any, mode: DeliveryMode | None) -> bool:
    await connection.execute(query("postgres", "wait_briefly"))
    known = await connection.fetchval(query("postgres", "set_delivery"), mode)
    if known == mode:  # another process was faster
        return False
    if known is None:
        await connection.execute(query("postgres", "make_outbox_triggers"))
    elif mode is None:
        await connection.execute(query("postgres", "drop_outbox_triggers"))
    return True


def _row(record: Any) -> OutboxRow:
    return OutboxRow(
        id=record["id"],
        kind=OutboxKind(record["kind"]),
        job=record["job"],
        queue=record["queue"],
        priority=record["priority"],
        type=record["type"],
        input=record["input"],
        trace=record["trace"],
        created_at=record["created_at"],
        attempt=record["attempt"],
        max_attempts=record["max_attempts"],
        reason=record["reason"],
    )

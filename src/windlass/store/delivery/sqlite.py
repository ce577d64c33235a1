"""Delivery on SQLite: every call is one transaction under the file's only write lock."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from windlass import failpoints
from windlass.model.delivery import (
    DeliveredClaim,
    DeliveryMode,
    LeasedOutbox,
    OutboxKind,
    OutboxRow,
    RefusalReason,
)
from windlass.store.delivery.undelivered import UndeliveredPart
from windlass.store.sql import query, query_parts
from windlass.store.sqlite.claim import lease_jobs, read_lanes
from windlass.store.sqlite.limits import LimitCounters
from windlass.store.sqlite.reads import SqliteReads
from windlass.store.sqlite.rows import SECOND, array, moment, span
from windlass.store.sqlite.session import Runner

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

    from windlass.store.protocol import Claim

CLEAR_PAGE = 1_000  # rows deleted per transaction, so that other writers get a turn in between


class SqliteDelivery(SqliteReads, UndeliveredPart):
    """The part of the store that delivers."""

    async def delivery(self) -> DeliveryMode | None:
        return await self._read(lambda connection, now: _mode(connection))

    async def set_delivery(self, mode: DeliveryMode | None) -> bool:
        changed = await self.delivery() != mode and await self._write(
            lambda connection, now: _set_mode(connection, mode)
        )
        if mode is None:  # also where it was None: the process that set it may have died before this
            while await self._write(_clear_page) == CLEAR_PAGE:
                pass
        return changed

    async def lease_outbox(self, most: int, lease: float) -> LeasedOutbox:
        return await self._write(lambda connection, now: lease_rows(connection, now, most, lease))

    async def settle_outbox(self, sent: Collection[int], unsent: Collection[int], *, delay: float = 0.0) -> None:
        def settle(connection: sqlite3.Connection, now: int) -> None:
            connection.execute(query("sqlite", "delete_from_outbox"), {"ids": _ids(sent)})
            again = {"ids": _ids(unsent), "deliver_at": now + span(delay) if delay else None}
            connection.execute(query("sqlite", "settle_outbox"), again)

        await self._write(settle)

    async def claim_delivered(self, claim: Claim, jobs: Sequence[UUID]) -> DeliveredClaim:
        if failpoints.armed:
            failpoints.hit("claim.before")
        wanted = list(dict.fromkeys(jobs))
        answer = await self._write(lambda connection, now: claim_named(connection, now, claim, wanted))
        if failpoints.armed:
            failpoints.hit("claim.committed")
        return answer

    async def _lanes_of_jobs(self) -> Sequence[Mapping[str, object]]:
        return await self._read(lambda connection, now: [lane._asdict() for lane in read_lanes(connection, None, now)])

    async def outbox_size(self, most: int) -> tuple[int, float | None]:
        def size(connection: sqlite3.Connection, now: int) -> tuple[int, float | None]:
            count, oldest = connection.execute(query("sqlite", "outbox_size"), {"most": most, "now": now}).fetchone()
            return count, None if oldest is None else (now - oldest) / SECOND

        return await self._read(size)


def _mode(connection: sqlite3.Connection) -> DeliveryMode | None:
    (mode,) = connection.execute(query("sqlite", "delivery")).fetchone()
    return None if mode is None else DeliveryMode(mode)


def _set_mode(connection: sqlite3.Connection, mode: DeliveryMode | None) -> bool:
    """Write the mode, and make or drop the triggers; they read the mode themselves."""
    known = _mode(connection)
    if known is mode:  # another process was faster
        return False
    connection.execute(query("sqlite", "set_delivery"), {"mode": mode})
    change = "make_outbox_triggers" if known is None else "drop_outbox_triggers" if mode is None else None
    for statement in query_parts("sqlite", change) if change is not None else ():
        connection.execute(statement)
    return True


def _clear_page(connection: sqlite3.Connection, now: int) -> int:
    del now
    return connection.execute(query("sqlite", "clear_outbox"), {"page": CLEAR_PAGE}).rowcount


def lease_rows(connection: sqlite3.Connection, now: int, most: int, lease: float) -> LeasedOutbox:
    """Lease due rows, and settle what needs no relay: jobs that are not claimable, closed, or due later."""
    common = {"most": most, "now": now}
    connection.execute(query("sqlite", "free_outbox"), common)
    found = connection.execute(query("sqlite", "due_outbox"), common).fetchall()
    sent, dropped = ([row for row in found if row[-1] == verdict] for verdict in ("send", "drop"))
    connection.execute(query("sqlite", "delete_from_outbox"), {"ids": _ids(row[0] for row in dropped)})
    for ident, *_, run_at, closed_by, verdict in found:
        if verdict == "wait":
            kept = {"id": ident, "deliver_at": run_at, "waits_for": closed_by}
            connection.execute(query("sqlite", "keep_in_outbox"), kept)
    until = {"ids": _ids(row[0] for row in sent), "until": now + span(lease)}
    connection.execute(query("sqlite", "lease_outbox"), until)
    next_due: float | None = None
    if len(found) == most:
        next_due = None if len(sent) == most else 0.0
    elif (at := connection.execute(query("sqlite", "next_in_outbox"), {"now": now}).fetchone()[0]) is not None:
        next_due = max(0, at - now) / SECOND
    return LeasedOutbox(rows=[_row(row) for row in sent], dropped=len(dropped), next_due=next_due)


def claim_named(connection: sqlite3.Connection, now: int, claim: Claim, wanted: Sequence[UUID]) -> DeliveredClaim:
    """Lease the jobs that may be claimed, park those that meet a full key, and put back what can be claimed later."""
    parameters = {
        "ids": array(wanted),
        "types": array(claim.types),
        "queues": None if claim.queues is None else array(claim.queues),
        "suspects": claim.suspects.value,
        "now": now,
    }
    chosen: list[str] = []
    token: int | None = None
    if connection.execute(query("sqlite", "worker_is_alive"), {"worker": str(claim.worker)}).fetchone() is not None:
        limit_counters = LimitCounters(Runner(connection, now), connection, now)
        chosen = [
            ident
            for ident, limits in connection.execute(query("sqlite", "delivered_jobs"), parameters).fetchall()
            if limits is None or limit_counters.try_admit(ident, limits)
        ]
        limit_counters.write()
        token = limit_counters.next_token()
    jobs = lease_jobs(connection, now, claim, chosen) if chosen else []
    held = {job.id for job in jobs}
    rest = parameters | {"ids": array(job for job in wanted if job not in held)}
    refused = connection.execute(query("sqlite", "refuse_delivered"), rest).fetchall()
    connection.execute(query("sqlite", "put_back"), rest)
    return DeliveredClaim(
        jobs=jobs,
        refused={UUID(ident): RefusalReason(reason) for ident, reason in refused},
        next_token=None if token is None else max(0, token - now) / SECOND,
    )


def _ids(numbers: Iterable[int]) -> str:
    return msgspec.json.encode(list(numbers)).decode()


def _row(row: Sequence[Any]) -> OutboxRow:
    ident, kind, job, queue, priority, type, input, trace, created_at, attempt, max_attempts, reason, *_ = row
    return OutboxRow(
        id=ident,
        kind=OutboxKind(kind),
        job=UUID(job),
        queue=queue,
        priority=priority,
        type=type,
        input=input,
        trace=trace,
        created_at=moment(created_at),
        attempt=attempt,
        max_attempts=max_attempts,
        reason=reason,
    )

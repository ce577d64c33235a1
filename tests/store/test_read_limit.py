"""A list that takes too long is stopped, and says what took too long and how to narrow it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
import pytest

from windlass import ReadTimeout, StoreBusy
from windlass.model.filter import parse
from windlass.model.state import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from windlass.store.protocol import Store

    from .rig import Rig

READS: dict[str, tuple[str, Callable[[Store], Awaitable[object]]]] = {
    "counts": ("the counts by state", lambda store: store.counts()),
    "queues": ("the queues", lambda store: store.queues()),
    "tenants": ("the tenants", lambda store: store.tenants()),
    "phases": ("the phases", lambda store: store.phases()),
    "search_ids": ("the jobs that a filter chooses", lambda store: store.search_ids(parse(""))),
    "errors": ("the errors", lambda store: store.errors(since=3_600.0)),
    "search": ("a page of jobs", lambda store: store.search(parse(""))),
}


@asynccontextmanager
async def stuck(rig: Rig) -> AsyncIterator[None]:
    """Reads of the jobs do not end in time: on PostgreSQL they wait for a lock; on SQLite no time is allowed."""
    await rig.enqueue_many(500)
    await rig.run("UPDATE {}jobs SET fingerprint = '000000000000', error_at = created_at")
    if rig.dialect == "sqlite":
        rig.store.read_timeout = 0.0  # type: ignore[attr-defined]
        yield
    else:
        rig.store.read_timeout = 0.1  # type: ignore[attr-defined]
        connection = await asyncpg.connect(rig.store.url)  # type: ignore[attr-defined]
        try:
            async with connection.transaction():
                await connection.execute("LOCK TABLE windlass.jobs")
                yield
        finally:
            await connection.close()
    rig.store.read_timeout = 60.0  # type: ignore[attr-defined]


@pytest.mark.parametrize("read", READS)
async def test_a_list_that_takes_too_long_is_stopped(rig: Rig, read: str) -> None:
    what, call = READS[read]

    async with stuck(rig):
        with pytest.raises(ReadTimeout, match=f"to read {what}.*WINDLASS_READ_TIMEOUT") as stopped:
            await call(rig.store)

    assert isinstance(stopped.value, StoreBusy)
    await call(rig.store)  # the connection is good for the next read


async def test_what_workers_read_has_no_such_limit(rig: Rig) -> None:
    rig.store.read_timeout = 0.000001  # type: ignore[attr-defined]
    await rig.enqueue_many(500)

    claimed = await rig.claim(room=1)

    assert (await rig.find(claimed[0].id)).status is State.RUNNING

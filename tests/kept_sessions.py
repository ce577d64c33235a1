"""Sessions of PostgreSQL that outlive a test.

A new session reads the catalogue and plans each statement for the first time: three quarters of a short test's cost.
So the pool of a closed store waits here for the next store on the same database. All tests of such a folder run on one
event loop, to which the sessions belong.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import servers
from windlass.store.postgres.connections.pool import ConnectionPool
from windlass.testing.databases import PostgresDatabase

waiting: defaultdict[tuple[str | None, int], list[Any]] = defaultdict(list)  # by database and size
processes: set[int] = set()  # of the server's, one for each session
loop: asyncio.AbstractEventLoop | None = None  # the one of all tests; that of a thread ends with its app


class KeptPool(ConnectionPool):
    """A pool that is not closed with its store, unless a session is in use then."""

    async def open(self) -> None:
        if self._pool is None and on_kept_loop() and self._waiting():
            self._pool = self._waiting().pop()
        await super().open()

    async def close(self) -> None:
        pool = self._pool
        if pool is not None and not self.pooler and pool.get_idle_size() == pool.get_size() and on_kept_loop():
            self._waiting().append(pool)
            self._pool = None
        await super().close()

    async def _connect(self, *args: Any, **options: Any) -> Any:
        connection = await super()._connect(*args, **options)
        if on_kept_loop():
            processes.add(connection.get_server_pid())
        return connection

    def _waiting(self) -> list[Any]:
        return waiting[self.address.database, self.size]


def on_kept_loop() -> bool:
    return asyncio.get_running_loop() is loop


@pytest_asyncio.fixture(scope="session", loop_scope="session", autouse=True)
async def kept_sessions() -> AsyncIterator[None]:
    """For the conftest of a folder whose tests run on one loop."""
    global loop
    loop = asyncio.get_running_loop()
    yield
    for pool in (pool for pools in waiting.values() for pool in pools):
        await pool.close()


@contextmanager
def postgres_database(*, moved: bool = False, given: str = "") -> Iterator[PostgresDatabase]:
    """As `servers.postgres_database`, for stores that keep their sessions."""
    database = PostgresDatabase(servers.url_of("postgres"), moved=moved, given=given)
    database.create()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("windlass.store.postgres.store.ConnectionPool", KeptPool)
            yield database
    finally:
        database.drop(spared=processes)


def run_on_one_loop(folder: Path, items: list[pytest.Item]) -> None:
    for item in items:
        if folder in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)

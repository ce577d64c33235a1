"""Throw-away databases: a temporary SQLite file, or a database of its own on a PostgreSQL server.

PostgreSQL's time is the server's. There `windlass.now()` is replaced by a row that the harness moves with its clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from windlass.blocking import Portal
from windlass.errors import ConfigError
from windlass.store import dialect_of, masked
from windlass.testing.errors import HarnessError

MOVABLE_CLOCK = """
CREATE TABLE windlass.test_clock (now timestamptz NOT NULL);
INSERT INTO windlass.test_clock VALUES (statement_timestamp());
CREATE OR REPLACE FUNCTION windlass.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
AS 'SELECT now FROM windlass.test_clock';
"""


class Database(Protocol):
    """What a harness needs. `create` and `drop` are called on a thread without an event loop, `move` on any."""

    @property
    def url(self) -> str: ...

    def create(self) -> None:
        """Make it, with Windlass's schema in it."""
        ...

    def move(self, now: datetime) -> None:
        """Let the database's own time be `now`."""
        ...

    def drop(self) -> None: ...


def throwaway(url: str | None) -> Database:
    """A database for one harness: on the PostgreSQL server that `url` leads to, else in a file."""
    if url is None:
        return SqliteFile()
    if dialect_of(url) == "sqlite":
        raise HarnessError(
            f"{url} would be used up by a test; leave url= away, and a SQLite file is made and removed by itself"
        )
    return PostgresDatabase(url)


class SqliteFile:
    """A file in a directory of its own. Its time is the harness's clock anyway."""

    def __init__(self) -> None:
        self._directory: TemporaryDirectory[str] | None = None
        self._path = Path()

    @property
    def url(self) -> str:
        return f"sqlite:///{self._path}"

    def create(self) -> None:
        from windlass.store.sqlite.migrator import SqliteMigrator

        self._directory = TemporaryDirectory(prefix="windlass-", ignore_cleanup_errors=True)
        self._path = Path(self._directory.name).resolve() / "jobs.db"
        asyncio.run(SqliteMigrator(self.url).migrate())

    def move(self, now: datetime) -> None:
        pass

    def drop(self) -> None:
        if self._directory is not None:
            self._directory.cleanup()


class PostgresDatabase:
    """A database beside the one that the URL names; its user must be allowed to create databases."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._name = f"windlass_test_{uuid4().hex[:12]}"
        self._portal = Portal()  # a thread of its own: the clock may be moved from any loop, and never waits for it
        self._connection: Any = None

    @property
    def url(self) -> str:
        return urlunsplit(urlsplit(self._server)._replace(path=f"/{self._name}"))

    def create(self) -> None:
        self._do(self._create)

    def move(self, now: datetime) -> None:
        self._do(lambda: self._connection.execute("UPDATE windlass.test_clock SET now = $1", now))

    def drop(self) -> None:
        try:
            self._do(self._drop)
        finally:
            self._portal.close()

    def _do(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Wait for it, also on an event loop's thread: nothing there is needed for it."""
        self._portal.submit(work).result()

    async def _create(self) -> None:
        try:
            from windlass.store.postgres.migrator import PostgresMigrator
            from windlass.store.postgres.pool import connect
        except ImportError:
            raise ConfigError("PostgreSQL needs asyncpg; run: pip install 'windlass[postgres]'") from None

        await self._administer(f"CREATE DATABASE {self._name}")
        await PostgresMigrator(self.url).migrate()
        self._connection = await connect(self.url)
        await self._connection.execute(MOVABLE_CLOCK)

    async def _drop(self) -> None:
        if self._connection is not None:
            await self._connection.close()
        await self._administer(f"DROP DATABASE IF EXISTS {self._name} WITH (FORCE)")

    async def _administer(self, statement: str) -> None:
        import asyncpg

        from windlass.store.postgres.pool import connect

        connection = await connect(self._server)
        try:
            await connection.execute(statement)
        except asyncpg.InsufficientPrivilegeError as error:
            raise HarnessError(
                f"{masked(self._server)}: {error}; a harness makes a database of its own: ALTER ROLE … CREATEDB"
            ) from error
        finally:
            await connection.close()

"""Databases for tests: a temporary SQLite file, or a database of its own on a PostgreSQL server.

The migrations run once per process. A SQLite file is written from the bytes of the first one. A PostgreSQL database is
copied from a template, and emptied and used again for the next test: that is twenty times as fast as a new copy. A
database whose tables, functions, triggers or grants a test changed is dropped instead.

PostgreSQL's time is the server's. There `windlass.now()` is replaced by a row that the harness moves with its clock.
"""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from windlass.address import plain_url, read_address
from windlass.blocking import Portal
from windlass.errors import ConfigError
from windlass.store import dialect_of, masked
from windlass.testing.errors import HarnessError

T = TypeVar("T")

MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 256 << 20  # bytes that must be free there before a file of a test goes into it

MOVABLE_CLOCK = """
CREATE TABLE windlass.test_clock (now timestamptz NOT NULL);
INSERT INTO windlass.test_clock VALUES (statement_timestamp());
"""
SET_TIME = """
CREATE OR REPLACE FUNCTION windlass.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS 'SELECT {}'
"""
REAL_TIME = "statement_timestamp()"
MOVED_TIME = "now FROM windlass.test_clock"

# Sessions that a test left open are ended first: one that commits later would write into the next test.
EMPTY = """
DO $$
DECLARE
    name text;
    large boolean;
BEGIN
    LOOP
        PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> ALL (pg_backend_pid() || '{{{spared}}}'::int[])
            AND backend_type = 'client backend';
        EXIT WHEN NOT FOUND;
        PERFORM pg_sleep(0.001), pg_stat_clear_snapshot();
    END LOOP;
    FOR name, large IN SELECT oid::regclass::text, pg_relation_size(oid) > 4000000 FROM pg_class
                 WHERE oid >= 16384 AND relkind = 'r'
                   AND oid <> ALL ('{{windlass.installation, windlass.migrations, windlass.test_clock}}'::regclass[])
    LOOP
        -- A TRUNCATE gives a table and its indexes new files and new rows in the catalogue: only where there is much.
        EXECUTE CASE WHEN large THEN 'TRUNCATE ' ELSE 'DELETE FROM ' END || name;
    END LOOP;
    PERFORM setval('windlass.audit_number', 1, false);
END $$
"""

# What a test can change besides rows. Own objects have oids from 16384 on; windlass.now() is set for every test.
SHAPE = """
SELECT md5(string_agg(line, E'\\n' ORDER BY line)) FROM (
    SELECT concat_ws(' ', 'class', oid, relname, relacl, reloptions, relrowsecurity, relpersistence)
      FROM pg_class WHERE oid >= 16384 AND relkind <> 't' AND relpersistence <> 't'
       AND relnamespace <> 'pg_toast'::regnamespace
    UNION ALL SELECT concat_ws(' ', 'column', attrelid, attname, atttypid, attnotnull, atthasdef, attacl, attisdropped)
      FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
     WHERE attrelid >= 16384 AND relkind <> 't' AND relpersistence <> 't'
    UNION ALL SELECT concat_ws(' ', 'function', oid, md5(prosrc), proacl) FROM pg_proc
     WHERE oid >= 16384 AND oid <> 'windlass.now'::regproc
    UNION ALL SELECT concat_ws(' ', 'trigger', oid, tgenabled) FROM pg_trigger WHERE oid >= 16384
    UNION ALL SELECT concat_ws(' ', 'type', oid, typnotnull, typdefault) FROM pg_type
     WHERE oid >= 16384 AND typrelid = 0 AND typelem = 0
    UNION ALL SELECT concat_ws(' ', 'operator', oid) FROM pg_operator WHERE oid >= 16384
    UNION ALL SELECT concat_ws(' ', 'policy', oid) FROM pg_policy
    UNION ALL SELECT concat_ws(' ', 'extension', oid) FROM pg_extension
    UNION ALL SELECT concat_ws(' ', 'rule', oid, ev_enabled) FROM pg_rewrite WHERE oid >= 16384
    UNION ALL SELECT concat_ws(' ', 'constraint', oid, convalidated) FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT concat_ws(' ', 'index', indexrelid, indisvalid, indisready) FROM pg_index WHERE indexrelid >= 16384
    UNION ALL SELECT concat_ws(' ', 'schema', oid, nspname, nspacl) FROM pg_namespace
     WHERE oid >= 16384 AND nspname NOT LIKE 'pg\\_%temp\\_%'
    UNION ALL SELECT concat_ws(' ', 'setting', setrole, setconfig) FROM pg_db_role_setting
      JOIN pg_database ON pg_database.oid IN (setdatabase) WHERE datname = current_database()
    UNION ALL SELECT concat_ws(' ', 'database', datacl, datallowconn, datconnlimit) FROM pg_database
     WHERE datname = current_database()
    UNION ALL SELECT concat_ws(' ', 'migrations', array_agg(number)) FROM windlass.migrations
    UNION ALL SELECT concat_ws(' ', 'installation', id) FROM windlass.installation
) AS lines (line)
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


def temporary_database(url: str | None) -> Database:
    """A database for one harness: on the PostgreSQL server that `url` leads to, else in a file."""
    if url is None:
        return SqliteFile()
    if dialect_of(url) == "sqlite":
        raise HarnessError(
            f"{url} would be used up by a test; leave url= away, and a SQLite file is made and removed by itself"
        )
    return PostgresDatabase(url)


# SQLite


class SqliteFile:
    """A file in a directory of its own. Its time is the harness's clock anyway."""

    def __init__(self) -> None:
        self._directory: TemporaryDirectory[str] | None = None
        self._path = Path()

    @property
    def url(self) -> str:
        return f"sqlite:///{self._path}"

    def create(self) -> None:
        self._directory = TemporaryDirectory(prefix="windlass-", dir=_roomy_memory(), ignore_cleanup_errors=True)
        self._path = Path(self._directory.name).resolve() / "jobs.db"
        write_migrated_file(self._path)

    def move(self, now: datetime) -> None:
        pass

    def drop(self) -> None:
        if self._directory is not None:
            self._directory.cleanup()


def write_migrated_file(path: Path) -> None:
    """A SQLite file with the newest schema and nothing else in it."""
    path.write_bytes(_migrated_file())


@cache
def _migrated_file() -> bytes:
    from windlass.store.sqlite.migrator import SqliteMigrator

    portal = Portal()  # the caller may be on a running loop
    with TemporaryDirectory(prefix="windlass-") as directory:
        path = Path(directory).resolve() / "jobs.db"
        portal.submit(SqliteMigrator(f"sqlite:///{path}").migrate).result()
        portal.close()
        return path.read_bytes()


def _roomy_memory() -> str | None:
    """Where SQLite's syncs cost nothing, unless TMPDIR names a place for temporary files."""
    if os.environ.get("TMPDIR") or not os.access(MEMORY, os.W_OK | os.X_OK):
        return gettempdir()
    return str(MEMORY) if shutil.disk_usage(MEMORY).free > MEMORY_NEEDED else gettempdir()


# PostgreSQL


class PostgresDatabase:
    """A database beside the one that the URL names; its user must be allowed to create databases.

    With `moved` its time is a row that `move()` writes; without, it is the server's. `given` is SQL for the tables that
    a suite adds to each of its databases; they are emptied with ours.
    """

    def __init__(self, server: str, *, moved: bool = True, given: str = "") -> None:
        self._pool = _pool(server, given)
        self._moved = moved
        self._copy: _Copy | None = None

    @property
    def url(self) -> str:
        return "" if self._copy is None else self._copy.url

    def create(self) -> None:
        self._copy = self._pool.acquire(moved=self._moved)

    def move(self, now: datetime) -> None:
        copy = self._copy
        assert copy is not None
        self._pool.do(lambda: copy.connection.execute("UPDATE windlass.test_clock SET now = $1", now))

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        """Past Windlass, on the connection that empties and moves the database."""
        copy = self._copy
        assert copy is not None
        return list(await self._pool.ado(lambda: copy.connection.fetch(sql, *args)))

    def drop(self, spared: Collection[int] = ()) -> None:
        """Sessions with these process ids stay open."""
        copy, self._copy = self._copy, None
        if copy is not None:
            self._pool.release(copy, spared)


class _Copy:
    """One database of this process, and the connection that empties and moves it."""

    def __init__(self, url: str, connection: Any) -> None:
        self.url = url
        self.connection = connection
        self.shape = ""

    @property
    def name(self) -> str:
        return urlsplit(self.url).path[1:]


class _DatabasePool:
    """The databases of this process on one server: those in use, and those that wait for the next test."""

    def __init__(self, server: str, given: str) -> None:
        self._server = plain_url(server)
        self._given = given
        self._portal = Portal()  # a thread of its own: the clock may be moved from any loop, and never waits for it
        self._administrator: Any = None  # kept open: at the end of the process no new connection can be made
        self._template: str | None = None
        self._free: list[_Copy] = []

    def acquire(self, *, moved: bool) -> _Copy:
        return self.do(lambda: self._acquire(MOVED_TIME if moved else REAL_TIME))

    def release(self, copy: _Copy, spared: Collection[int]) -> None:
        self.do(lambda: self._release(copy, spared))

    def close(self) -> None:
        try:
            self.do(self._close)
        finally:
            self._portal.close()

    def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for it, also on an event loop's thread: nothing there is needed for it."""
        return self._portal.submit(work).result()

    async def ado(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await it from any loop."""
        return await self._portal.arun(work)

    async def _acquire(self, time: str) -> _Copy:
        while self._free:
            copy = self._free.pop()
            try:
                await self._set_time(copy, time)
                return copy
            except Exception:  # the server was restarted, or ended the connection
                await self._drop(copy)
        copy = await self._make_copy()
        await self._set_time(copy, time)
        return copy

    async def _set_time(self, copy: _Copy, time: str) -> None:
        """A new function makes every session plan its statements again, so only where it differs."""
        if (
            await copy.connection.fetchval("SELECT prosrc FROM pg_proc WHERE oid = 'windlass.now'::regproc")
            != f"SELECT {time}"
        ):
            await copy.connection.execute(SET_TIME.format(time))

    async def _release(self, copy: _Copy, spared: Collection[int]) -> None:
        """Empty it for the next test. What cannot be emptied, or has another shape than before, is dropped."""
        with suppress(Exception):
            await copy.connection.execute(EMPTY.format(spared=",".join(map(str, spared))))
            if await copy.connection.fetchval(SHAPE) == copy.shape:
                self._free.append(copy)
                return
        await self._drop(copy)

    async def _make_copy(self) -> _Copy:
        if self._template is None:
            self._template = await self._make_template()
        name = f"windlass_test_{uuid4().hex[:12]}"
        await self._administer(f"CREATE DATABASE {name} TEMPLATE {self._template}")
        copy = _Copy(self._named(name), await connect(self._named(name)))
        await copy.connection.execute("UPDATE windlass.installation SET id = DEFAULT")
        copy.shape = await copy.connection.fetchval(SHAPE)
        return copy

    async def _make_template(self) -> str:
        from windlass.store.postgres.migrator import PostgresMigrator

        name = f"windlass_template_{uuid4().hex[:12]}"
        await self._administer(f"CREATE DATABASE {name}")
        try:
            await PostgresMigrator(self._named(name)).migrate()
            connection = await connect(self._named(name))
            await connection.execute(MOVABLE_CLOCK + self._given)
            await connection.close()
        except BaseException:
            await self._administer(f"DROP DATABASE {name} WITH (FORCE)")
            raise
        return name

    async def _drop(self, copy: _Copy) -> None:
        with suppress(Exception):
            await copy.connection.close(timeout=5)
        await self._administer(f"DROP DATABASE IF EXISTS {copy.name} WITH (FORCE)")

    async def _close(self) -> None:
        for copy in self._free:
            await self._drop(copy)
        if self._template is not None:
            await self._administer(f"DROP DATABASE IF EXISTS {self._template} WITH (FORCE)")
        if self._administrator is not None:
            await self._administrator.close()
        self._free, self._template, self._administrator = [], None, None

    def _named(self, name: str) -> str:
        return urlunsplit(urlsplit(self._server)._replace(path=f"/{name}"))

    async def _administer(self, statement: str) -> None:
        if self._administrator is None or self._administrator.is_closed():
            self._administrator = await connect(self._server)
        try:
            await self._administrator.execute(statement)
        except Exception as error:
            if getattr(error, "sqlstate", None) != "42501":
                raise
            raise HarnessError(
                f"{masked(self._server)}: {error}; a harness makes a database of its own: ALTER ROLE … CREATEDB"
            ) from error


async def connect(url: str) -> Any:
    """Without the engine's time limits: a busy server may take long to copy a database."""
    try:
        import asyncpg

        from windlass.store.postgres.connections.pool import translate_error
    except ImportError:
        raise ConfigError("PostgreSQL needs asyncpg, which is not installed; run: pip install asyncpg") from None
    try:
        return await asyncpg.connect(url)
    except Exception as error:
        raise translate_error(error, read_address(url)) from error


_pools: dict[tuple[str, str], _DatabasePool] = {}
_of_the_parent: list[object] = []


def _leave_to_the_parent() -> None:
    """In the child of a fork: its own pools are new ones.

    The parent's are kept: a connection that is collected here takes itself out of the selector, which the processes
    share, and the parent would wait for its answers for ever.
    """
    _of_the_parent.append(dict(_pools))
    _pools.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)


def _pool(server: str, given: str) -> _DatabasePool:
    if (server, given) not in _pools:
        _pools[server, given] = _DatabasePool(server, given)
    return _pools[server, given]


@atexit.register
def drop_databases() -> None:
    """Drop what this process made on PostgreSQL servers, and its templates."""
    while _pools:
        _, pool = _pools.popitem()
        with suppress(Exception):  # the server may be gone already
            pool.close()

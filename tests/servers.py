"""The servers that stories need: each starts once per run, when the first story asks for it, and ends with the run.

The process that the run began with starts them; with `-n 3` the worker processes ask it through a socket. Servers start
beside each other, and a run in which no story asks for one starts none. A variable such as
WINDLASS_TEST_POSTGRES_URL names a server that is there already.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

import with_browser
import with_postgres
import with_rabbitmq
import with_redis
from windlass.testing.databases import PostgresDatabase

ADDRESS = "WINDLASS_TEST_SERVERS"  # of the socket
NONE = "WINDLASS_TEST_NO_SERVERS"  # set by `make test-fast`
KEY = b"windlass-tests"
ENVIRONMENT = dict(os.environ)  # read now: some stories take every WINDLASS_* out of theirs


@contextmanager
def _browser() -> Iterator[str]:
    with with_browser.PrivateBrowser() as url:
        yield url


@contextmanager
def _rabbitmq() -> Iterator[str]:
    with with_rabbitmq.private_rabbitmq() as server:
        yield server.url


@contextmanager
def _redis() -> Iterator[str]:
    with with_redis.private_redis() as server:
        yield server.url


STARTERS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "postgres": with_postgres.private_postgres,
    "browser": _browser,
    "amqp": _rabbitmq,
    "redis": _redis,
}
MARKS = {"amqp": "rabbitmq"}  # where a server's mark has another name


@cache
def url_of(name: str) -> str:
    """The URL of a server; waits until it accepts connections."""
    if given := ENVIRONMENT.get(f"WINDLASS_TEST_{name.upper()}_URL"):
        return given
    if ENVIRONMENT.get(NONE):
        mark = MARKS.get(name, name)
        raise RuntimeError(f"this story asks for the {name} server and is not marked; add: @pytest.mark.{mark}")
    with Client(ENVIRONMENT[ADDRESS], authkey=KEY) as connection:
        connection.send(name)
        url, problem = connection.recv()
    if url is None:
        raise RuntimeError(f"the {name} server of this run did not start: {problem}")
    return str(url)


@contextmanager
def postgres_database(*, moved: bool = False, given: str = "") -> Iterator[PostgresDatabase]:
    """An empty database with the schema; `moved` and `given` as in `PostgresDatabase`."""
    database = PostgresDatabase(url_of("postgres"), moved=moved, given=given)
    database.create()
    try:
        yield database
    finally:
        database.drop()


def administer(statement: str, url: str | None = None) -> None:
    """Run one statement on the PostgreSQL server, or in the database that the URL names."""
    with psycopg.connect(url or url_of("postgres"), autocommit=True) as connection:
        connection.execute(statement.encode())


def named(database: str) -> str:
    """The URL of a database on the PostgreSQL server."""
    return urlunsplit(urlsplit(url_of("postgres"))._replace(path=f"/{database}"))


class Servers:
    """What the first process of a run keeps: a socket to ask at, and the servers that were asked for."""

    def __init__(self, directory: Path) -> None:
        self._stack = ExitStack()
        # The kernel ends a server when the thread that started it ends: the executor's live as long as the run.
        self._threads = ThreadPoolExecutor(max_workers=len(STARTERS), thread_name_prefix="test-server")
        self._started: dict[str, Future[str]] = {}
        self._lock = threading.Lock()
        self._listener = Listener(str(directory / "servers"), authkey=KEY)
        ENVIRONMENT[ADDRESS] = os.environ[ADDRESS] = str(self._listener.address)
        threading.Thread(target=self._listen, name="test-servers", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: Connection) -> None:
        with connection, suppress(OSError, EOFError):
            name = connection.recv()
            try:
                connection.send((self._future(name).result(), None))
            except Exception as problem:
                connection.send((None, str(problem)))

    def _future(self, name: str) -> Future[str]:
        with self._lock:
            if name not in self._started:
                self._started[name] = self._threads.submit(self._start, name)
            return self._started[name]

    def _start(self, name: str) -> str:
        server = STARTERS[name]()
        url = server.__enter__()
        self._stack.push(server)
        return url

    def stop(self) -> None:
        os.environ.pop(ADDRESS, None)
        self._listener.close()
        self._stack.close()
        self._threads.shutdown()

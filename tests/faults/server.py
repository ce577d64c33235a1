"""A PostgreSQL server of the test's own, which may be ended as a power failure ends it, and started again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import with_postgres
from private_server import private_directory


class Server:
    """Runs on one port all its lives."""

    def __init__(self, private: Any, url: str, address: list[str]) -> None:
        self.url = url
        self._private = private
        self._address = address

    def crash(self) -> None:
        """An immediate shutdown: sessions end without notice, and the next start recovers."""
        self._private._server.send_signal(signal.SIGQUIT)
        self._private._server.wait(30)

    def start(self) -> None:
        private = self._private
        private._server = private._spawn("postgres", "-D", str(private._data), *self._address, *private._options)
        private.wait_until_ready()


@contextmanager
def private_server() -> Iterator[Server]:
    """A durable one: what was committed before a crash must be there after it."""
    binaries = with_postgres.find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed here that could be crashed; run: make test")
    account = with_postgres.server_account()
    with private_directory(account) as directory:
        private = with_postgres.PrivateServer(binaries, directory, account, durable=True)
        with private as url:
            port = url.rpartition(":")[2].partition("/")[0]
            yield Server(private, url, ["-h", "127.0.0.1", "-p", port, "-k", str(directory)])

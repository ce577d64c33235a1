"""A PostgreSQL server of the test's own, which may be ended as a power failure ends it, and started again."""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "with_postgres.py"


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
        private._wait_until_ready()


@contextmanager
def private_server() -> Iterator[Server]:
    """A durable one: what was committed before a crash must be there after it."""
    tool = load_tool()
    binaries = tool.find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed here that could be crashed; run: make test")
    account = tool.server_account()
    with tool.private_directory(account) as directory:
        private = tool.PrivateServer(binaries, directory, account, durable=True)
        with private as url:
            port = url.rpartition(":")[2].partition("/")[0]
            yield Server(private, url, ["-h", "127.0.0.1", "-p", port, "-k", str(directory)])


def load_tool() -> ModuleType:
    """The tool that `make test` uses is a script beside the package, not a module in it."""
    spec = importlib.util.spec_from_file_location("with_postgres", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""The server turns read-only, or another one is the primary now: workers and apps come back without a restart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import pytest

from servers import administer
from windlass import State, Windlass
from windlass.errors import StoreUnavailable

from .proxy import proxied
from .rig import FaultLab
from .server import Server, private_server

TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' AND pid <> pg_backend_pid()
"""

READ_ONLY = re.compile(r"is read-only .*target_session_attrs=read-write")


@contextmanager
def read_only(name: str) -> Iterator[None]:
    """Sessions that begin now only read, and stay so: what a provider does when a disk is full, or a failover."""
    administer(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    administer(TERMINATE.format(name))
    yield
    administer(f"ALTER DATABASE {name} RESET default_transaction_read_only")


def refusal(lab: FaultLab) -> str:
    """The error of an enqueue that cannot be written."""
    with pytest.raises(StoreUnavailable) as refused:
        lab.enqueue("plain")
    return str(refused.value)


def test_sessions_of_a_read_only_server_do_not_stay(postgres_lab: FaultLab) -> None:
    lab = postgres_lab
    name = urlsplit(lab.url).path.strip("/")
    before = lab.enqueue("effect", 5) + lab.enqueue("plain", 5)
    worker = lab.ready(WINDLASS_LEASE="30s", WINDLASS_BEAT="1s")
    lab.until_final(before)

    with read_only(name):
        # The first try may meet the session that was just ended, and reports that.
        lab.until(lambda: bool(READ_ONLY.search(refusal(lab))), "an enqueue says that the server is read-only")
        lab.until(lambda: "is read-only" in worker.output(), "the worker met the read-only server")

    after = lab.enqueue("effect", 5) + lab.enqueue("plain", 5)
    lab.until_final(before + after)
    assert worker.ended() is None
    assert lab.counts() == {State.SUCCEEDED: len(before + after)}
    assert "lost its leases" not in worker.output()


@pytest.fixture(scope="module")
def standby() -> Iterator[Server]:
    """A server that takes no writes."""
    with private_server() as server:
        yield server


def test_of_several_hosts_the_one_that_takes_writes_is_found(postgres_lab: FaultLab, standby: Server) -> None:
    name = urlsplit(postgres_lab.url).path.strip("/")
    administer(f"CREATE DATABASE {name}", standby.url)
    administer(f"ALTER DATABASE {name} SET default_transaction_read_only = on", standby.url)
    parts = urlsplit(postgres_lab.url)
    login, _, primary = parts.netloc.rpartition("@")
    other = urlsplit(standby.url).netloc.rpartition("@")[2]

    with proxied(postgres_lab.url) as silent:
        silent.swallow()
        hosts = f"{silent.place},{other},{primary}"
        url = urlunsplit(parts._replace(netloc=f"{login}@{hosts}" if login else hosts))
        app = Windlass(url)
        try:
            assert app.counts()[State.QUEUED] == 0
            (job,) = postgres_lab.enqueue("plain")
            worker = postgres_lab.ready(WINDLASS_URL=url, WINDLASS_LEASE="30s", WINDLASS_BEAT="1s")
            postgres_lab.until_final([job])
            assert worker.ended() is None
        finally:
            app.close()

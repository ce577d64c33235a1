"""TLS to a broker, with a certificate that the story makes."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import with_rabbitmq
import with_redis
from private_server import private_directory
from windlass import Windlass
from windlass.broker_address import read_broker_address
from windlass.errors import BrokerRefused
from windlass.model.admission import Rule
from windlass.transport import make_dispatcher
from windlass.transport.protocol import JobDispatcher
from windlass.transport.tls import explain_handshake

from .conftest import Bench, job_of

REQUEST = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=windlass-test")


def make_pair(directory: Path, name: str) -> Path:
    """A self-signed certificate for this name, and its key, in a directory that the account of a server may read."""
    directory.mkdir()
    files = ("-keyout", str(directory / "key.pem"), "-out", str(directory / "cert.pem"))
    command = ["openssl", *REQUEST, "-addext", f"subjectAltName={name}", *files]
    subprocess.run(command, check=True, capture_output=True)
    for path in (directory, *directory.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return directory


@pytest.fixture(scope="module")
def pairs() -> Iterator[Path]:
    """`own`, which the servers have, and `other`, which none has."""
    with private_directory(None, memory=True) as directory:
        directory.chmod(0o755)
        make_pair(directory / "own", "IP:127.0.0.1")
        make_pair(directory / "other", "IP:127.0.0.1")
        yield directory


@pytest.fixture(scope="module", params=["rabbitmq", "redis"])
def url(request: pytest.FixtureRequest, pairs: Path) -> Iterator[str]:
    """Of a server that speaks TLS."""
    if request.param == "rabbitmq":
        with with_rabbitmq.private_rabbitmq(tls=pairs / "own") as rabbit:
            yield f"{rabbit.tls_url}/"
        return
    with (
        private_directory(None, memory=True) as directory,
        with_redis.RedisServer(directory, tls=pairs / "own") as redis,
    ):
        yield redis.url


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[JobDispatcher]:
    dispatcher = make_dispatcher(url)
    try:
        await dispatcher.open()
        yield dispatcher
    finally:
        await dispatcher.close()


async def refusal(url: str) -> str:
    with pytest.raises(BrokerRefused) as caught:
        async with opened(url):
            pass
    return str(caught.value)


async def test_deliveries_travel_through_tls(url: str, pairs: Path) -> None:
    async with opened(f"{url}?cafile={pairs}/own/cert.pem") as transport:
        bench = Bench(name="tls", transport=transport)
        async with transport.consume(["mail"], prefetch=10) as consumer:
            (sent,) = await bench.send()
            (delivery,) = await bench.receive(consumer, 1)
            assert job_of(delivery) == sent
            await consumer.acknowledge([delivery])


async def test_a_certificate_that_is_not_trusted_is_refused_with_the_option_that_names_one(
    url: str, pairs: Path
) -> None:
    for given in ("", f"?cafile={pairs}/other/cert.pem"):
        message = await refusal(f"{url}{given}")
        assert "is not trusted: self" in message
        assert "?cafile=" in message.partition(" is not trusted")[2]
        assert ":windlass@" not in message  # the password


async def test_a_certificate_for_another_name_is_refused(url: str, pairs: Path) -> None:
    message = await refusal(f"{url.replace('127.0.0.1', 'localhost')}?cafile={pairs}/own/cert.pem")
    assert "localhost" in message
    assert "a host that the certificate names" in message


async def test_the_next_host_is_tried_where_the_certificate_of_one_is_refused(url: str, pairs: Path) -> None:
    login, _, rest = url.rpartition("@") if "@" in url else (url.partition("//")[0] + "//", "", url.partition("//")[2])
    port = rest.rpartition(":")[2].partition("/")[0]
    both = f"{login}{'@' if '@' in url else ''}localhost:{port},{rest}"
    async with opened(f"{both}?cafile={pairs}/own/cert.pem") as transport:
        assert transport.is_up


def test_an_error_that_has_no_reason_is_named_by_its_text() -> None:
    address = read_broker_address("rediss://127.0.0.1")
    assert "odd" in str(explain_handshake(ssl.SSLError("odd"), address))


async def test_rates_wait_while_tls_refuses_their_server(url: str, tmp_path: Path) -> None:
    if not url.startswith("rediss"):
        pytest.skip("rates are kept in Redis")
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db", rates=url)
    await app.amigrate()
    try:
        rule = Rule(name="wiki", most=1, period=1.0)
        await app._client.aask(lambda store: store.declare([rule]))
        granted = await app._client.aask(lambda store: store.acquire("wiki", most=1.0))
    finally:
        await app.aclose()
    assert not granted.granted


async def test_files_that_cannot_be_used_are_named(url: str, pairs: Path) -> None:
    for given in (f"?cafile={pairs}/none.pem", f"?cafile={pairs}/own/key.pem", f"?certfile={pairs}/own/key.pem"):
        assert "cannot be used" in await refusal(f"{url}{given}")

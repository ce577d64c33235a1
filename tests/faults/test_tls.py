"""TLS to PostgreSQL with a self-signed pair: verified, or refused with the words that help."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

import with_postgres
from windlass import Windlass
from windlass.errors import StoreUnavailable

from .server import private_server

pytestmark = pytest.mark.postgres


class Secured(NamedTuple):
    url: str
    authority: Path
    stranger: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A server whose certificate names localhost, and not 127.0.0.1."""
    place = tmp_path_factory.mktemp("tls")
    authority, stranger = make_pair(place, "own"), make_pair(place, "stranger")
    with private_server() as server:
        data = server._private._data
        for name in ("own.crt", "own.key"):
            shutil.copy(place / name, data / name)
            if account := with_postgres.server_account():
                os.chown(data / name, account.pw_uid, account.pw_gid)
        with psycopg.connect(server.url, autocommit=True) as connection:
            for setting in ("ssl_cert_file = 'own.crt'", "ssl_key_file = 'own.key'", "ssl = on"):
                connection.execute(f"ALTER SYSTEM SET {setting}".encode())
            connection.execute("SELECT pg_reload_conf()")
        yield Secured(server.url, authority, stranger)


def make_pair(place: Path, name: str) -> Path:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(place / f"{name}.key"), "-out", str(place / f"{name}.crt")),
        ],
        check=True,
        capture_output=True,
    )
    (place / f"{name}.key").chmod(0o600)
    return place / f"{name}.crt"


async def test_every_session_of_a_worker_is_encrypted_and_verified(secured: Secured) -> None:
    url = secured.url.replace("127.0.0.1", "localhost")
    app = Windlass(f"{url}?sslmode=verify-full&sslrootcert={secured.authority}")

    @app.job
    async def add(a: int, b: int) -> int:
        return a + b

    await app.amigrate()
    async with app.worker():
        assert await (await add.aenqueue(2, 3)).aresult(timeout=60) == 5
        with psycopg.connect(secured.url) as connection:
            sessions = connection.execute(
                "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'windlass'"
            ).fetchall()
    await app.aclose()

    assert len(sessions) >= 3  # claims, the beat, LISTEN
    assert set(sessions) == {(True,)}


@pytest.mark.parametrize(
    ("host", "mode", "authority", "message"),
    [
        ("localhost", "verify-full", "stranger", "self-signed certificate|self signed certificate"),
        ("127.0.0.1", "verify-full", "authority", "IP address mismatch"),
        ("localhost", "verify-ca", "stranger", "self-signed certificate|self signed certificate"),
    ],
)
async def test_a_certificate_that_does_not_match_is_refused(
    secured: Secured, host: str, mode: str, authority: str, message: str
) -> None:
    url = secured.url.replace("127.0.0.1", host)
    app = Windlass(f"{url}?sslmode={mode}&sslrootcert={getattr(secured, authority)}")

    with pytest.raises(StoreUnavailable, match=rf"certificate.*({message}).*sslrootcert"):
        await app.amigrate()
    await app.aclose()

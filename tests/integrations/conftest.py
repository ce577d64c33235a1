"""Every story has a database of its own, on SQLite and on PostgreSQL; the Django project moves from one to the next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import django
import pytest

from windlass import Windlass

from .rig import PATIENCE, PROJECT, Database, administer_now

URL = "WINDLASS_TEST_POSTGRES_URL"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that every story copies."""
    path = tmp_path_factory.mktemp("template") / "jobs.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_server() -> Iterator[str]:
    """A database that every story copies."""
    url = os.environ.get(URL)
    if url is None:
        pytest.skip(f"{URL} is not set; run: make test")
    name = f"windlass_template_{uuid4().hex[:12]}"
    administer_now(url, f"CREATE DATABASE {name}")
    _migrate(_named(url, name))
    yield name
    administer_now(url, f"DROP DATABASE {name} WITH (FORCE)")


def _migrate(url: str) -> None:
    app = Windlass(url)
    app.migrate()
    app.close()


def _named(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        path = tmp_path / "jobs.db"
        path.write_bytes(request.getfixturevalue("migrated_file").read_bytes())
        place = Database(url=f"sqlite:///{path}", dialect="sqlite")
        yield place
        _close(place)
        return
    template, server = request.getfixturevalue("migrated_server"), os.environ[URL]
    name = f"windlass_test_{uuid4().hex[:12]}"
    administer_now(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    place = Database(url=_named(server, name), dialect="postgres")
    yield place
    _close(place)
    administer_now(server, f"DROP DATABASE {name} WITH (FORCE)")


def _close(place: Database) -> None:
    for app in place.apps:
        app.close()


@pytest.fixture(scope="session")
def django_set_up() -> None:
    sys.path.insert(0, str(PROJECT))
    os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
    django.setup()


@pytest.fixture
def project(django_set_up: None, database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The Django project on this story's database, with its tables."""
    from django.core.management import call_command

    from windlass.integrations.django import app

    with using(database.url):
        monkeypatch.setenv("PROJECT_DATABASE", database.url)
        for name in ("WINDLASS_URL", "WINDLASS_APP"):  # restored: `manage.py windlass` sets them
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        call_command("migrate", run_syncdb=True, verbosity=0)
        yield database
        app.close()


@contextmanager
def using(url: str) -> Iterator[None]:
    """DATABASES["default"] at this URL; Django reads it when a connection is made."""
    from django.db import connections
    from project.settings import database

    before = dict(connections.settings["default"])
    _move(connections, database(url))
    try:
        yield
    finally:
        _move(connections, before)


def _move(connections: Any, to: dict[str, Any]) -> None:
    """Connections belong to threads: to this one, and to asgiref's, which outlives every loop."""
    from asgiref.sync import SyncToAsync

    def forget() -> None:
        connections.close_all()
        if hasattr(connections._connections, "default"):
            del connections["default"]

    forget()
    SyncToAsync.single_thread_executor.submit(forget).result(PATIENCE)
    connections.settings["default"].update({"USER": "", "PASSWORD": "", "HOST": "", "PORT": "", **to})


@pytest.fixture
def manage(project: Database) -> Run:
    """Run `manage.py …` to its end."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=PROJECT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )

    return run

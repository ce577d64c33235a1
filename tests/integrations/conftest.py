"""Every test has a database of its own, on SQLite and on PostgreSQL; the Django project moves from one to the next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import django
import pytest

from servers import administer, named, postgres_database
from windlass.testing.databases import write_migrated_file

from .rig import PATIENCE, PROJECT, Database

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        path = tmp_path / "jobs.db"
        write_migrated_file(path)
        place = Database(url=f"sqlite:///{path}", dialect="sqlite")
        yield place
        _close(place)
        return
    with postgres_database() as lent:
        place = Database(url=lent.url, dialect="postgres")
        yield place
        _close(place)


def _close(place: Database) -> None:
    for app in place.apps:
        app.close()


@pytest.fixture(scope="session")
def django_set_up() -> None:
    sys.path.insert(0, str(PROJECT))
    os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
    django.setup()


@pytest.fixture(scope="session")
def project_file(django_set_up: None, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file with the project's tables, which every test copies."""
    path = tmp_path_factory.mktemp("project") / "project.db"
    _migrate(f"sqlite:///{path}")
    return path.read_bytes()


@pytest.fixture(scope="session")
def project_template(django_set_up: None) -> Iterator[str]:
    """A database with the project's tables, which every test copies."""
    name = f"windlass_project_{uuid4().hex[:12]}"
    administer(f"CREATE DATABASE {name}")
    _migrate(named(name))
    yield name
    administer(f"DROP DATABASE {name} WITH (FORCE)")


def _migrate(url: str) -> None:
    from django.core.management import call_command

    with using(url):
        call_command("migrate", run_syncdb=True, verbosity=0)


@pytest.fixture(params=["sqlite", "postgres"])
def project_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        path = tmp_path / "project.db"
        path.write_bytes(request.getfixturevalue("project_file"))
        yield Database(url=f"sqlite:///{path}", dialect="sqlite")
        return
    template, name = request.getfixturevalue("project_template"), f"windlass_test_{uuid4().hex[:12]}"
    administer(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield Database(url=named(name), dialect="postgres")
    administer(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def project(project_database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The Django project on this test's database, with its tables."""
    from windlass.integrations.django import app

    with using(project_database.url):
        monkeypatch.setenv("PROJECT_DATABASE", project_database.url)
        for name in ("WINDLASS_URL", "WINDLASS_APP"):  # restored: `manage.py windlass` sets them
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        yield project_database
        app.close()
        _close(project_database)


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

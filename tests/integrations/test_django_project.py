"""The project as its developers use it: manage.py, its settings, its own tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run
from .rig import PATIENCE, PROJECT, Database

# Both stores with the connection of the project: test_a_worker_runs_jobs_and_tasks_with_the_orm. What starts processes
# for another reason runs on one of them.
ON_POSTGRES = pytest.mark.parametrize("project_database", ["postgres"], indirect=True)
ON_SQLITE = pytest.mark.parametrize("project_database", ["sqlite"], indirect=True)


@contextmanager
def worker(*options: str) -> Iterator[None]:
    """`manage.py windlass worker …` while the block runs; it must end with code 0 on SIGTERM."""
    running = subprocess.Popen(
        [sys.executable, "manage.py", "windlass", "worker", *options],
        cwd=PROJECT,
        env=dict(os.environ),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield
    finally:
        running.send_signal(signal.SIGTERM)
        _, log = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, log


def test_a_worker_runs_jobs_and_tasks_with_the_orm(project: Database) -> None:
    from shop.jobs import apart, count, fresh, thank
    from shop.models import Order
    from shop.tasks import add

    Order.objects.create(email="a@example.org")
    jobs = [thank.enqueue("a@example.org"), count.enqueue(), apart.enqueue()]
    after = [fresh.enqueue() for _ in range(3)]
    result = add.enqueue(2, b=3)

    with worker("--concurrency", "1"):
        assert [job.result(timeout=PATIENCE) for job in jobs] == [1, 1, 1]
        assert [job.result(timeout=PATIENCE) for job in after] == [True] * 3
        while not result.is_finished:
            result.refresh()

    assert result.return_value == 5
    assert Order.objects.get().thanked


@ON_POSTGRES
def test_a_worker_of_several_processes_serves_one_queue(project: Database) -> None:
    from shop.tasks import add, thank

    there, elsewhere = thank.enqueue("a@example.org"), add.enqueue(1)

    with worker("--processes", "2", "--queue", "mail"):
        while not there.is_finished:
            there.refresh()
    elsewhere.refresh()

    assert (there.status, elsewhere.status) == ("SUCCESSFUL", "READY")


@ON_SQLITE
def test_tasks_of_another_module_run_where_the_settings_name_it(
    project: Database, manage: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shop.letters import post

    settings = "from project.settings import *\nWINDLASS = {**WINDLASS, 'MODULES': ['shop.letters']}\n"
    (tmp_path / "with_letters.py").write_text(settings)
    result, known = post.enqueue("Ann"), add_task().enqueue(1)

    with worker():  # it has not imported the module, and leaves its task to other workers
        while not known.is_finished:
            known.refresh()
        done = manage("windlass", "doctor")
        assert "shop.letters.post" in done.stdout, done.stderr
    result.refresh()
    assert (result.status, result.attempts) == ("READY", 0)

    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "with_letters")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with worker():
        while not result.is_finished:
            result.refresh()
    assert result.return_value == "posted to Ann"


def add_task() -> Any:
    from shop.tasks import add

    return add


@ON_SQLITE
def test_run_enqueues_a_job_of_the_project(project: Database, manage: Run) -> None:
    done = manage("windlass", "run", "shop.jobs:thank", "a@example.org", "--no-wait", "--settings=project.settings")

    assert (done.returncode, done.stderr) == (0, "")
    assert project.jobs() == 1
    refused = manage("windlass", "run", "shop.jobs:thank")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr


@ON_SQLITE  # it makes files of its own
def test_the_schema_comes_with_migrate_or_by_itself(manage: Run, tmp_path: Path) -> None:
    for command, expected in ((("migrate",), "Windlass: applied 0001"), (("windlass", "migrate"), "applied 0001")):
        url = f"sqlite:///{tmp_path / command[0]}.db"
        done = manage(*command, PROJECT_DATABASE=url)
        assert expected in done.stdout, done.stderr
        assert manage("windlass", "migrate", "--check", PROJECT_DATABASE=url).returncode == 0


def test_the_command_can_be_called_by_code(project: Database, capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import call_command

    call_command("windlass", "migrate")

    assert "up to date" in capsys.readouterr().out


def test_the_project_s_own_tests_use_the_test_database(project: Database, manage: Run, tmp_path: Path) -> None:
    from shop.jobs import thank

    thank.enqueue("real")
    (tmp_path / "with_file.py").write_text(
        f"from project.settings import *\nDATABASES['default']['TEST'] = {{'NAME': {str(tmp_path / 'test.db')!r}}}\n"
        if project.dialect == "sqlite"
        else "from project.settings import *\n"
    )

    done = manage("test", DJANGO_SETTINGS_MODULE="with_file", PYTHONPATH=str(tmp_path))

    assert "Ran 9 tests" in done.stderr
    assert done.returncode == 0, done.stderr
    assert project.jobs() == 1


@ON_SQLITE  # PostgreSQL has no databases in memory
def test_a_test_database_in_memory_is_refused_with_the_way_out(manage: Run) -> None:
    done = manage("test", "shop.tests.WithCommits")

    assert "which no worker can open" in done.stderr
    assert '["TEST"]' in done.stderr


@pytest.mark.parametrize(
    ("windlass", "problem"),
    [
        ({"CONCURENCY": 3}, "did you mean 'CONCURRENCY'"),
        ({"CONCURRENCY": 0}, "concurrency must be at least 1"),
        ({"DATABASE": "defualt"}, "did you mean 'default'"),
        ({"URL": "mysql://x"}, "not a store Windlass knows"),
        ({"MODULES": "shop.emails"}, "must be a list"),
        ([], "must be a dict"),
    ],
)
@ON_SQLITE
def test_wrong_settings_are_reported_by_check(project: Database, windlass: Any, problem: str) -> None:
    from django.core.management import call_command
    from django.core.management.base import SystemCheckError
    from django.test import override_settings

    with override_settings(WINDLASS=windlass), pytest.raises(SystemCheckError, match=problem):
        call_command("check")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        ({"NAME": "shop", "PORT": 5433}, "postgresql://localhost:5433/shop"),
        (
            {"NAME": "a b/c", "USER": "u@x", "PASSWORD": "p:/?", "HOST": "db"},
            "postgresql://u%40x:p%3A%2F%3F@db/a%20b%2Fc",
        ),
        ({"NAME": "shop", "HOST": "::1", "PORT": "1"}, "postgresql://[::1]:1/shop"),
        ({"NAME": "shop", "USER": "u", "HOST": "/run/pg", "PORT": "1"}, "postgresql://u@/shop?host=/run/pg&port=1"),
        ({"NAME": "s", "HOST": "h", "OPTIONS": {"sslmode": "require", "x": 1}}, "postgresql://h/s?sslmode=require"),
    ],
)
def test_the_url_follows_from_the_database(django_set_up: None, given: dict[str, Any], url: str) -> None:
    from windlass.integrations.django.database import _postgres

    assert _postgres("default", given) == url


def test_a_service_of_libpq_is_refused(django_set_up: None) -> None:
    from django.core.exceptions import ImproperlyConfigured

    from windlass.integrations.django.database import _postgres

    with pytest.raises(ImproperlyConfigured, match=r'"URL"'):
        _postgres("default", {"OPTIONS": {"service": "shop"}})

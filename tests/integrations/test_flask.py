"""Flask: enqueue in views, handlers inside the application's context, and the CLI group."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, current_app, g

from windlass import Windlass
from windlass.errors import ConfigError
from windlass.integrations.flask import WindlassFlask

from .rig import PATIENCE, Database

PROGRAM = """
from flask import Flask, current_app
from windlass import Windlass
from windlass.integrations.flask import WindlassFlask

windlass = Windlass(poll="100ms")
jobs = WindlassFlask(windlass=windlass)

@windlass.job
def name() -> str:
    return current_app.name + " " + current_app.config["GREETING"]

@windlass.job(isolation="process")
def apart() -> str:
    return name()

def create_app():
    print("made", flush=True)
    app = Flask("harbour")
    app.config["GREETING"] = "ahoy"
    jobs.init_app(app)
    return app
"""


def test_a_view_enqueues_and_the_handler_has_the_application_s_context(database: Database) -> None:
    windlass = database.app()
    app = Flask("harbour")
    jobs = WindlassFlask(app, windlass)

    @windlass.job
    def plain() -> str:
        g.seen = True
        return current_app.name

    @windlass.job
    async def coroutine() -> str:
        return f"{current_app.name} {hasattr(g, 'seen')}"

    @app.post("/")
    def post() -> list[str]:
        return [str(plain.enqueue().id), str(coroutine.enqueue().id)]

    ids = app.test_client().post("/").json
    assert app.extensions["windlass"] is jobs
    assert results(windlass, ids) == ["harbour", "harbour False"]


def test_jobs_declared_before_the_application_exists_have_its_context_too(database: Database) -> None:
    windlass = database.app()
    jobs = WindlassFlask(windlass=windlass)

    @jobs.windlass.job
    def early() -> str:
        return current_app.name

    jobs.init_app(Flask("first"))
    jobs.init_app(Flask("second"))

    assert results(windlass, [str(early.enqueue().id)]) == ["second"]
    with pytest.raises(RuntimeError, match="outside of application context"):
        early()  # a call is just a call


def test_without_a_windlass_one_is_made_from_the_config(database: Database) -> None:
    jobs = WindlassFlask()
    with pytest.raises(ConfigError, match="init_app"):
        jobs.windlass  # noqa: B018
    app = Flask("harbour")
    app.config.update(WINDLASS_URL=database.url, WINDLASS_CONCURRENCY=3)

    jobs.init_app(app)

    assert (jobs.windlass.settings.url, jobs.windlass.settings.concurrency) == (database.url, 3)
    app.config["WINDLASS_CONCURENCY"] = 3
    with pytest.raises(ConfigError, match="did you mean 'concurrency'"):
        WindlassFlask(app)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_cli_group_works_with_a_factory(database: Database, tmp_path: Path) -> None:
    (tmp_path / "harbour.py").write_text(PROGRAM)

    def flask(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "flask", "--app", "harbour:create_app", "windlass", *arguments],
            cwd=tmp_path,
            env={**os.environ, "WINDLASS_URL": database.url},
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )

    migrated = flask("migrate")
    assert migrated.stdout.splitlines()[:1] == ["made"]
    assert "up to date" in migrated.stdout
    assert flask("--help").stdout.count("worker")
    refused = flask("run", "harbour:nome", "--no-wait")
    assert refused.returncode == 2
    assert "did you mean 'name'" in refused.stderr

    ids = [flask("run", f"harbour:{job}", "--no-wait").stdout.splitlines()[-1] for job in ("name", "apart")]
    worker = subprocess.Popen(
        [sys.executable, "-m", "flask", "--app", "harbour:create_app", "windlass", "worker", "--processes", "2"],
        cwd=tmp_path,
        env={**os.environ, "WINDLASS_URL": database.url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        found = database.app()
        assert [found.find(id).result(timeout=PATIENCE) for id in ids] == ["harbour ahoy"] * 2
    finally:
        worker.terminate()
        assert worker.wait(PATIENCE) == 0


def results(windlass: Windlass, ids: Any) -> list[Any]:
    import asyncio

    async def run() -> list[Any]:
        async with windlass.worker():
            return [await (await windlass.afind(id)).aresult(timeout=PATIENCE) for id in ids]

    return asyncio.run(run())

"""The integration with Flask: jobs that run inside the application's context, and `flask windlass worker`.

    windlass = Windlass()
    jobs = WindlassFlask(windlass=windlass)

    def create_app() -> Flask:
        app = Flask(__name__)
        jobs.init_app(app)
        return app

A view enqueues as any synchronous code does: `send.enqueue("a@example.org")`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any

import click
from flask import Flask
from flask.cli import ScriptInfo

from windlass.app import Windlass
from windlass.errors import ConfigError
from windlass.integrations.commands import run_command_line
from windlass.integrations.wrapping_registry import WrappingRegistry

EXTENSION = "windlass"
PREFIX = "WINDLASS_"
PROGRAM = "windlass.integrations.flask.program:app"
"""The module by which a worker's processes find the application: it loads the application as `flask` does."""


class WindlassFlask:
    """A Flask extension. Without `windlass=` it makes a `Windlass` from WINDLASS_* in the application's config."""

    def __init__(self, app: Flask | None = None, windlass: Windlass | None = None) -> None:
        self._windlass = windlass
        self._flask: Flask | None = None
        if app is not None:
            self.init_app(app)

    @property
    def windlass(self) -> Windlass:
        """The `Windlass` that jobs are declared on."""
        if self._windlass is None:
            raise ConfigError(
                "WindlassFlask makes its Windlass from an application's config and has no application yet; call "
                "init_app(app) first, or pass your own: WindlassFlask(windlass=Windlass())"
            )
        return self._windlass

    def init_app(self, app: Flask) -> None:
        """Run every handler inside this application's context from now on, and add `flask windlass` to its CLI."""
        if self._windlass is None:
            self._windlass = Windlass(**_read_config(app))
        if self._flask is None:
            windlass = self._windlass
            windlass._registry = WrappingRegistry(
                windlass._registry, around=self._context, around_coroutine=self._async_context
            )
            windlass._program = windlass._program or PROGRAM
        self._flask = app
        app.extensions[EXTENSION] = self
        app.cli.add_command(command)

    @contextmanager
    def _context(self) -> Iterator[None]:
        assert self._flask is not None, "init_app sets it before it wraps handlers"
        with self._flask.app_context():
            yield

    @asynccontextmanager
    async def _async_context(self) -> AsyncIterator[None]:
        with self._context():
            yield


def _read_config(app: Flask) -> dict[str, Any]:
    return {key.removeprefix(PREFIX).lower(): value for key, value in app.config.items() if key.startswith(PREFIX)}


@click.command(
    "windlass",
    short_help="Windlass's command line: worker, dev, migrate, run.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Windlass's command line, with this application as its program."""
    script = ctx.ensure_object(ScriptInfo)
    app = script.load_app()
    with app.app_context():
        import_module(PROGRAM.partition(":")[0])  # it finds the loaded application, so that a factory runs once
    if script.app_import_path:
        os.environ["FLASK_APP"] = script.app_import_path  # as given to `flask --app`, for a worker's processes
    run_command_line(
        arguments, target=PROGRAM, url=app.extensions[EXTENSION].windlass.settings.url, name="flask windlass"
    )

"""The database that a command uses, and the store that is open while it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from windlass.cli.parse.complete import complete_program
from windlass.cli.parse.options import json_option

if TYPE_CHECKING:
    from windlass.config import Settings
    from windlass.model.job import Job
    from windlass.store.protocol import Store

T = TypeVar("T")

APP = "WINDLASS_APP"

url_option: Callable[[Any], Any] = click.option("--url", metavar="URL", help="The database, instead of WINDLASS_URL.")


def app_option_as(parameter: str) -> Callable[[Any], Any]:
    """The option -a, in a parameter of that name."""
    return click.option(
        "-a",
        "--app",
        parameter,
        metavar="APP",
        envvar=APP,
        shell_complete=complete_program,
        help="The program, such as app.py; also WINDLASS_APP.",
    )


app_option = app_option_as("app")


def store_options(command: Any) -> Any:
    """The options of a command that works on a store: which database, and in which form it prints."""
    return app_option(url_option(json_option(command)))


def load_settings(url: str | None, app: str | None) -> Settings:
    """The settings from --url, else those of the program, else those of the environment and the files."""
    from windlass.config import Settings

    if url is None and app is not None:
        from windlass.declare.program import load

        return load(app).settings
    settings = Settings.load(flags={"url": url})
    # With --url, a direct URL in the environment belongs to another database.
    return settings if url is None or settings.direct_url is None else settings.with_(direct_url=None)


def load_labels(app: str | None) -> Callable[[Job], str | None]:
    """A function that returns the program's own name for a job's state, or None; without a program always None."""
    if app is None:
        return lambda job: None
    from windlass.declare.program import load

    return load(app)._registry.label


def call_store(settings: Settings, action: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store, await `action(store)`, close the store."""
    import asyncio

    return asyncio.run(_call_store(settings, action))


async def _call_store(settings: Settings, action: Callable[[Store], Awaitable[T]]) -> T:
    import asyncio

    from windlass.clock import SystemClock
    from windlass.errors import SchemaMissing
    from windlass.store import make_store

    store = make_store(settings, SystemClock())
    try:
        await store.open()
    except SchemaMissing as error:
        raise _explain_place(settings, error) from error
    try:
        answer = await action(store)
    except asyncio.CancelledError:
        raise  # Ctrl-C: closing would wait for the statement that runs
    except BaseException:
        await store.close()
        raise
    await store.close()
    return answer


def _explain_place(settings: Settings, error: Exception) -> Exception:
    """A relative file that does not exist may exist in another directory: that of the program."""
    from pathlib import Path

    from windlass.address import read_address
    from windlass.errors import SchemaMissing

    path = read_address(settings.url).path
    if path is None or path.startswith("/") or Path(path).exists():
        return error
    return SchemaMissing(
        f"there is no file {path} in {Path.cwd()}, and {settings.url} means this directory; go to the directory of "
        f"your program, or name its file: --url sqlite:////path/to/{path}; to make a new one here: windlass migrate"
    )

"""What the shell offers at a tab: programs and jobs from files, names from the store, fields and states of a filter.

A completion prints no error and does not wait: without an answer within WAIT it offers nothing. A program is read and
not run, so that names come from the database of --url, the environment and the files, not from that of a program.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from windlass.store.protocol import Store

WAIT = 1.0  # seconds for the names in the store
MOST_NAMES = 200
MOST_FILES = 50  # that are read for the names of jobs

DOCUMENTS = ("input", "output")  # fields with fields inside

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_program(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Python files and directories; after a colon, the apps of the file."""
    head, colon, name = incomplete.rpartition(":")
    if colon:
        return [f"{head}:{app}" for app in _names_in(_file_of(head), _is_app) if app.startswith(name)]
    return _files(incomplete)


def complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """`app:add` for each job of the files in this directory; after a colon, the jobs of the file."""
    head, colon, name = incomplete.rpartition(":")
    if colon:
        return [f"{head}:{job}" for job in _names_in(_file_of(head), _is_job) if job.startswith(name)]
    files = [] if "/" in incomplete else sorted(Path.cwd().glob(f"{_plain(incomplete)}*.py"))[:MOST_FILES]
    jobs = [f"{file.stem}:{job}" for file in files for job in _names_in(file, _is_job)]
    return jobs or _files(incomplete)


def complete_filter(ctx: click.Context, param: click.Parameter | None, incomplete: str) -> list[str]:
    """The fields of a filter, the states, and the names of queues, types and tenants."""
    from windlass.model.filter import FIELDS
    from windlass.model.state import State

    negated = "-" if incomplete.startswith("-") else ""
    field, colon, typed = incomplete.removeprefix("-").partition(":")
    head, comma, last = typed.rpartition(",")
    begin = f"{negated}{field}:{head}{comma}"
    if not colon:
        return [f"{negated}{name}{'.' if name in DOCUMENTS else ':'}" for name in FIELDS if name.startswith(field)]
    if field in ("state", "status"):
        return [begin + state.value for state in State if state.value.startswith(last)]
    if field in ("queue", "type", "tenant"):
        return [begin + name for name in _known_names(ctx, field) if name.startswith(last)]
    return []


def complete_name(kind: str) -> Complete:
    """The names of a kind that the store knows: queue, type, tenant, schedule or limit."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        return [name for name in _known_names(ctx, kind) if name.startswith(incomplete)]

    return complete


# Files


def _files(incomplete: str) -> list[str]:
    folder, slash, begin = incomplete.rpartition("/")
    try:
        entries = sorted(Path(folder + slash or ".").expanduser().iterdir())
    except OSError:
        return []
    found = [entry for entry in entries if entry.name.startswith(begin) and not entry.name.startswith((".", "__"))]
    files = [folder + slash + entry.name for entry in found if entry.suffix == ".py"]
    return files + [f"{folder}{slash}{entry.name}/" for entry in found if entry.is_dir()]


def _file_of(head: str) -> Path:
    return Path(head if head.endswith(".py") else f"{head.replace('.', '/')}.py").expanduser()


def _names_in(file: Path, wanted: Callable[[ast.stmt], str | None]) -> list[str]:
    """The names that the file defines at its top, in their order; none where the file cannot be read."""
    try:
        return [name for statement in ast.parse(file.read_bytes()).body if (name := wanted(statement))]
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []


def _is_app(statement: ast.stmt) -> str | None:
    if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        if isinstance(target, ast.Name) and re.match(r"([\w.]+\.)?Windlass\(", ast.unparse(statement.value)):
            return target.id
    return None


def _is_job(statement: ast.stmt) -> str | None:
    """`@app.job`, `@app.job(…)` above a function, and `app.pipeline(…)` behind a name."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        decorators = [ast.unparse(each).partition("(")[0] for each in statement.decorator_list]
        return statement.name if any(each.endswith(".job") for each in decorators) else None
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        is_pipeline = re.match(r"[\w.]+\.pipeline\(", ast.unparse(statement.value))
        return statement.targets[0].id if is_pipeline else None
    return None


def _plain(text: str) -> str:
    return re.sub(r"[^\w.-]", "", text)


# The store


def _known_names(ctx: click.Context, kind: str) -> Iterable[str]:
    """The names in the store; none when it cannot be reached in time. Names with spaces are left out."""
    import threading

    names: list[str] = []

    def read() -> None:
        try:
            names.extend(_read_names(ctx, kind))
        except BaseException:  # a tab prints no error
            return

    # A thread: the import of a program and the look-up of a host's name cannot be cancelled.
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(WAIT)
    return sorted(name for name in {*names} if not re.search(r"\s", name))[:MOST_NAMES]


def _read_names(ctx: click.Context, kind: str) -> set[str]:
    import contextlib
    import io

    from windlass.cli.parse.store_option import call_store, load_settings

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        settings = load_settings(ctx.params.get("url"), None)
        return call_store(settings, lambda store: _names(store, kind))


async def _names(store: Store, kind: str) -> set[str]:
    from windlass.cli.parse.gate_options import read_known_names

    if kind == "schedule":
        return {row.name for row in await store.schedules()}
    if kind == "limit":
        return {row.key for row in await store.limits()}
    return await read_known_names(store, kind)

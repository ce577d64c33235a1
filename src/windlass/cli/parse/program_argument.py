"""The program that a command names: as its argument, with -a, in WINDLASS_APP, or the one app of the directory."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from windlass.cli.parse.complete import complete_program
from windlass.cli.parse.store_option import app_option_as
from windlass.errors import ProgramError

KNOWN = ("app.py", "main.py", "windlass_app.py")
MAKES_APP = re.compile(rb"^\w+\s*(:[^=\n]+)?=\s*([\w.]+\.)?Windlass\(", re.MULTILINE)


def program_argument(name: str) -> Callable[[Any], Any]:
    """Give a command the argument `name`; -a and WINDLASS_APP are other ways to write it."""

    def decorate(function: Any) -> Any:
        @click.argument(name, required=False, shell_complete=complete_program)
        @app_option_as("named")
        @functools.wraps(function)
        def command(*args: Any, named: str | None, **options: Any) -> Any:
            ctx, given = click.get_current_context(), options[name]
            if given and named and ctx.get_parameter_source("named") is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"{given} and -a {named} both name a program; give one of them")
            return function(*args, **{**options, name: given or named})

        return command

    return decorate


def find_program(command: str, target: str | None) -> str:
    """The program that was named, or the one in the current directory."""
    return target or guess(Path.cwd(), command)


def guess(directory: Path, command: str = "dev") -> str:
    """The one file that makes an app; no file is run to find it."""
    found = [file.name for file in sorted(directory.glob("*.py")) if _makes_app(file)]
    known = [name for name in KNOWN if name in found]
    if len(known) == 1:
        return known[0]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ProgramError(
            f"no Python file in {directory} makes a Windlass app; go to the directory of your program, or name the "
            f"program, for example: windlass {command} path/to/app.py"
        )
    raise ProgramError(f"{' and '.join(found)} make apps; name one, for example: windlass {command} {found[0]}")


def was_named_by_environment(ctx: click.Context, name: str) -> bool:
    """Whether only WINDLASS_APP names the program."""
    return (
        ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE
        and ctx.get_parameter_source("named") is ParameterSource.ENVIRONMENT
    )


def _makes_app(file: Path) -> bool:
    try:
        return MAKES_APP.search(file.read_bytes()) is not None
    except OSError:
        return False

"""Windlass's command line inside a framework's own: `manage.py windlass worker`, `flask windlass worker`."""

from __future__ import annotations

import os
from collections.abc import Sequence

TAKE_A_PROGRAM = frozenset({"dev", "migrate", "worker"})
"""Commands that take a program as first argument. The others read it, or its database, from the environment."""


def run_command_line(arguments: Sequence[str], *, target: str, url: str, name: str) -> None:
    """Run `windlass …` for the program `target`. It ends with SystemExit, as every command line does."""
    from windlass.cli.main import cli

    os.environ["WINDLASS_URL"] = url
    os.environ["WINDLASS_APP"] = target
    passed = list(arguments)
    if passed[:1] and passed[0] in TAKE_A_PROGRAM and not {"-h", "--help"} & set(passed):
        passed.insert(1, target)
    cli.main(passed, prog_name=name)

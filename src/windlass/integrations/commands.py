"""The command line inside a framework's own: `manage.py windlass worker`, `flask windlass worker`."""

from __future__ import annotations

import os
from collections.abc import Sequence

OF_A_PROGRAM = frozenset({"dev", "migrate", "worker"})
"""Commands that take a program, which is known here; the others find it, or its database, in the environment."""


def pass_on(arguments: Sequence[str], *, target: str, url: str, name: str) -> None:
    """Run `windlass …` for the program `target`; ends with SystemExit, as every command line does."""
    from windlass.cli.main import cli

    os.environ["WINDLASS_URL"] = url
    os.environ["WINDLASS_APP"] = target
    words = list(arguments)
    if words[:1] and words[0] in OF_A_PROGRAM and not {"-h", "--help"} & set(words):
        words.insert(1, target)
    cli.main(words, prog_name=name)

"""Where the demo is shown: a live screen where there is a terminal for it, plain lines everywhere else."""

from __future__ import annotations

import os
import sys
from typing import Protocol

from windlass.cli.demo.scene import Scene
from windlass.cli.demo.summary import Summary

LEAST_COLUMNS, LEAST_LINES = 80, 24
DUMB = ("", "dumb", "unknown")


class Stage(Protocol):
    """What the show needs of a screen."""

    def open(self) -> None: ...

    def show(self, scene: Scene) -> bool:
        """Show the scene as it is now; False when the terminal or pipe is closed."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was; may be called twice."""
        ...

    def conclude(self, summary: Summary) -> None:
        """After the close: print the summary."""
        ...


def choose_stage() -> Stage:
    """A live screen where the terminal can show it, otherwise plain lines."""
    if _is_terminal():
        from windlass.cli.demo.screen import Screen

        screen = Screen()
        if screen.columns >= LEAST_COLUMNS and screen.lines >= LEAST_LINES:
            return screen
    from windlass.cli.demo.plain import Plain

    return Plain()


def _is_terminal() -> bool:
    """Whether the output is a terminal that shows colours and more than ASCII, and NO_COLOR is not set."""
    return (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM", "") not in DUMB
        and sys.stdout.encoding.lower().replace("-", "") == "utf8"
    )

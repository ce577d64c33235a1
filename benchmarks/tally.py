"""Counts handlers in a worker's process, so that nobody has to ask the database when all of them ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Tally:
    """Says once that handlers ran so often. It costs a thousandth of a job; a poll of the database would cost more."""

    def __init__(self) -> None:
        self._left = 0
        self._tell: Callable[[], None] | None = None

    def expect(self, attempts: int, tell: Callable[[], None]) -> None:
        self._left, self._tell = attempts, tell

    def count(self) -> None:
        self._left -= 1
        if self._left == 0 and self._tell is not None:
            self._tell()


tally = Tally()

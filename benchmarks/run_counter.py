"""Counts attempts in a worker's process, so that the benchmark need not poll the database for their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class RunCounter:
    """Calls back once after so many attempts. It costs a thousandth of a job; polls of the database would cost more."""

    def __init__(self) -> None:
        self._left = 0
        self._report: Callable[[], None] | None = None

    def expect(self, attempts: int, report: Callable[[], None]) -> None:
        self._left, self._report = attempts, report

    def count(self) -> None:
        self._left -= 1
        if self._left == 0 and self._report is not None:
            self._report()


counter = RunCounter()

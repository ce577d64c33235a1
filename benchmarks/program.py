"""The program under measure: a job that does nothing, and one that tells when it ran.

Its job types are at the top of a module, as in a real program: only then can a worker isolate its suspects, and asks
for all its jobs in one claim.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from windlass import Windlass

if TYPE_CHECKING:
    from collections.abc import Callable

app = Windlass()  # the worker's process has WINDLASS_URL


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


@app.job
async def noop(number: int) -> None:
    tally.count()


@app.job
async def stamp(number: int) -> float:
    return time.time()


class Sender:
    """The same job types, enqueued into any database from this process."""

    def __init__(self, url: str) -> None:
        self.app = Windlass(url)
        self.noop = self.app.job(noop.definition.fn)
        self.stamp = self.app.job(stamp.definition.fn)

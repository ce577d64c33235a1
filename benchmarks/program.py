"""The program under measure: a job that does nothing, and one that tells when it ran.

Its job types are at the top of a module, as in a real program: only then can a worker isolate its suspects, and asks
for all its jobs in one claim.
"""

from __future__ import annotations

import time

from tally import tally
from windlass import Windlass

app = Windlass()  # the worker's process has WINDLASS_URL


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

"""The measured program: a job that does nothing, and a job that returns when it ran.

Its job types are at the top of a module, as in a real program: only then can a worker isolate suspects, and claim all
jobs in one claim.
"""

from __future__ import annotations

import time

from run_counter import counter
from windlass import Windlass

app = Windlass()  # its URL is WINDLASS_URL, in the worker's process


@app.job
async def noop(number: int) -> None:
    counter.count()


@app.job
async def stamp(number: int) -> float:
    return time.time()


class Sender:
    """Enqueues the same job types into any database from this process."""

    def __init__(self, url: str) -> None:
        self.app = Windlass(url)
        self.noop = self.app.job(noop._definition.fn)
        self.stamp = self.app.job(stamp._definition.fn)

"""The measured program: a job that does nothing, and a job that returns when it ran.

Its job types are at the top of a module, as in a real program: only then can a worker isolate suspects, and claim all
jobs in one claim.
"""

from __future__ import annotations

import asyncio
import time

from run_counter import counter
from windlass import Windlass

app = Windlass()  # its URL is WINDLASS_URL, in the worker's process


@app.job
async def noop(number: int) -> None:
    counter.count()


@app.job
async def wait(number: int) -> None:
    """A millisecond of waiting, as for a cache near by."""
    await asyncio.sleep(0.001)
    counter.count()


@app.job
async def compute(number: int) -> None:
    """Three milliseconds of the worker's own CPU, as for a document that is parsed."""
    ends = time.thread_time() + 0.003
    while time.thread_time() < ends:
        pass
    counter.count()


@app.job
async def stamp(number: int) -> float:
    return time.time()


class Sender:
    """Enqueues the same job types into any database from this process."""

    def __init__(self, url: str) -> None:
        self.app = Windlass(url)
        self.noop = self.app.job(noop._definition.fn)
        self.wait = self.app.job(wait._definition.fn)
        self.compute = self.app.job(compute._definition.fn)
        self.stamp = self.app.job(stamp._definition.fn)

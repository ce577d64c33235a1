"""The program whose limits are measured: each job once without limits and once counted against a key of its own name.

A module of its own: a program that declares no limit is what the quick benchmark measures.
"""

from __future__ import annotations

import asyncio

from tally import tally
from windlass import Windlass, per

KEYS = 1_000
MOST = 2  # at a time, of each key
INPUT_OUTPUT = 0.001  # seconds that a job waits for something else

app = Windlass()  # the worker's process has WINDLASS_URL


@app.job
async def plain(number: int) -> None:
    tally.count()


@app.job(limits=[per("key", MOST, key="key")])
async def limited(number: int, key: int) -> None:
    tally.count()


@app.job
async def plain_io(number: int) -> None:
    await asyncio.sleep(INPUT_OUTPUT)
    tally.count()


@app.job(limits=[per("key", MOST, key="key")])
async def limited_io(number: int, key: int) -> None:
    await asyncio.sleep(INPUT_OUTPUT)
    tally.count()

"""The program of the limits benchmark: each job without limits, and again with a limit per key.

It is separate from program.py, because the quick benchmark measures a program that declares no limit.
"""

from __future__ import annotations

import asyncio

from run_counter import counter
from windlass import Windlass, limit

KEYS = 1_000
MOST = 2  # jobs at a time per key
INPUT_OUTPUT = 0.001  # seconds of waiting in a job

app = Windlass()  # its URL is WINDLASS_URL, in the worker's process


@app.job
async def plain(number: int) -> None:
    counter.count()


@app.job(limits=[limit("key", MOST, key="key")])
async def limited(number: int, key: int) -> None:
    counter.count()


@app.job
async def plain_io(number: int) -> None:
    await asyncio.sleep(INPUT_OUTPUT)
    counter.count()


@app.job(limits=[limit("key", MOST, key="key")])
async def limited_io(number: int, key: int) -> None:
    await asyncio.sleep(INPUT_OUTPUT)
    counter.count()

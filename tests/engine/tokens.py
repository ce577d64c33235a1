"""What tests of rates read: tokens that were given, and what is held back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from windlass import Windlass
from windlass.runtime.worker import Worker

from .rig import eventually, stores_of

EXACT = 0.001  # seconds: a database counts in microseconds
STEP = 0.2  # seconds in which time passes near a limit: the database is ahead of the workers by one, for a moment


def granted(worker: Worker) -> list[float]:
    """The waits of the tokens that this worker's handlers were given, from now on."""
    store, waits = stores_of(worker), []
    acquire = store.acquire

    async def spy(bucket: str, *, most: float) -> Any:
        grant = await acquire(bucket, most=most)
        if grant.granted:
            waits.append(grant.wait)
        return grant

    store.acquire = spy
    return waits


async def held(app: Windlass, bucket: str) -> float:
    return await app._client.aask(lambda store: store.held_for(bucket))


async def grown(made: Sequence[object], count: int) -> None:
    await eventually(lambda: asyncio.sleep(0, len(made)), lambda length: length >= count)

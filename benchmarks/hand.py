"""A worker in a process of its own, on WINDLASS_URL: `python benchmarks/hand.py N program processors [queue]`.

It works until its standard input closes, prints `ready` when the worker has started, and `done` when handlers ran N
times.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from tally import tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from windlass import Windlass

PROCESSORS = 200  # of the worker
START_LIMIT = 20.0  # seconds until a worker must have started
STOP_LIMIT = 40.0  # seconds for its graceful end


class Hand:
    """The worker as the measuring process sees it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def says(self, word: str, *, limit: float) -> None:
        """Until the worker prints `word`."""
        assert self._process.stdout is not None
        async with asyncio.timeout(limit):
            line = await self._process.stdout.readline()
        if line.decode().strip() != word:
            raise RuntimeError(f"the worker's process said {line!r} where {word!r} was expected; its errors are above")

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_LIMIT):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def hand(
    url: str, *, tell: int = 0, program: str = "program", processors: int = PROCESSORS, queue: str | None = None
) -> AsyncIterator[Hand]:
    """Work for `url` in another process while the block runs: on one queue, or on all of them."""
    command = [sys.executable, __file__, str(tell), program, str(processors), *([] if queue is None else [queue])]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, env=os.environ | {"WINDLASS_URL": url}
    )
    worker = Hand(process)
    try:
        await worker.says("ready", limit=START_LIMIT)
        yield worker
    finally:
        await worker.stop()


async def work(tell: int, program: str, processors: int, queues: list[str]) -> None:
    app: Windlass = import_module(program).app
    tally.expect(tell, lambda: print("done", flush=True))
    ended = asyncio.Event()
    # Nobody writes there: readable means closed, also when the measuring process was killed.
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    async with app.worker(concurrency=processors, queues=queues or None):
        print("ready", flush=True)
        await ended.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; standard input ends this one
    asyncio.run(work(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]))

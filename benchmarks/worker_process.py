"""A worker in its own process, on WINDLASS_URL: `python benchmarks/worker_process.py N program processors [queue]`.

It runs until its standard input closes. It prints `ready` when the worker has started, and `done` when handlers have
run N times.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from run_counter import counter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from windlass import Windlass

PROCESSORS = 200
START_LIMIT = 20.0  # seconds until a worker must have started
STOP_LIMIT = 40.0  # seconds for its graceful shutdown


class WorkerProcess:
    """The worker's process, as seen by the measuring process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def wait_for(self, message: str, *, limit: float) -> None:
        """Wait until the worker prints `message`."""
        assert self._process.stdout is not None
        async with asyncio.timeout(limit):
            line = await self._process.stdout.readline()
        if line.decode().strip() != message:
            raise RuntimeError(f"the worker's process printed {line!r} instead of {message!r}; its errors are above")

    def cpu(self) -> float:
        """Seconds of CPU that the process has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # in user mode and in the kernel

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
async def run_worker(
    url: str,
    *,
    expected: int = 0,
    program: str = "program",
    processors: int = PROCESSORS,
    queue: str | None = None,
    environment: Mapping[str, str] = {},
) -> AsyncIterator[WorkerProcess]:
    """Run a worker on `url` in another process during the block: on one queue, or on all of them.

    With `expected`, the worker prints `done` after so many attempts.
    """
    command = [sys.executable, __file__, str(expected), program, str(processors), *([] if queue is None else [queue])]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, env={**os.environ, "WINDLASS_URL": url, **environment}
    )
    worker = WorkerProcess(process)
    try:
        await worker.wait_for("ready", limit=START_LIMIT)
        yield worker
    finally:
        await worker.stop()


async def main(expected: int, program: str, processors: int, queues: list[str]) -> None:
    import observed

    app: Windlass = import_module(program).app
    counter.expect(expected, lambda: print("done", flush=True))
    ended = asyncio.Event()
    # No process writes to standard input: readable means closed, also when the measuring process was killed.
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    observed.watch(app)
    worker = app.worker(concurrency=processors, queues=queues or None)
    observed.log_like_a_worker(worker)
    async with worker:
        print("ready", flush=True)
        await ended.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; this process ends with its input
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]))

"""A worker's process reduced to its children: prints its forkserver's and its child's pid, and waits to be killed."""

from __future__ import annotations

import asyncio

from runtime.children_rig import StandIn
from runtime.programs import handlers
from windlass.config import Settings
from windlass.runtime.processes.process_pool import ProcessPool


async def main() -> None:
    children = ProcessPool(Settings(), program=None)
    attempt = StandIn(handlers.computes)
    running = asyncio.create_task(children.run(attempt))
    await attempt.spoke.wait()
    assert children._forkserver is not None
    assert attempt.context is not None
    print(children._forkserver.pid, attempt.context.processed, flush=True)
    await running


if __name__ == "__main__":
    asyncio.run(main())

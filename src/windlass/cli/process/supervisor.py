"""The supervisor: keeps a number of worker processes alive, and does nothing else.

It holds no database connection and never imports the program, so that no fault of a program or a database can end it.
A worker process that dies is replaced after a delay. The delay doubles with every early death and has jitter, so that
the workers of many machines do not restart at the same moment.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import time
from collections.abc import Callable, Sequence

from windlass.cli.process.child import WindlassProcess, describe_exit
from windlass.cli.process.systemd import Systemd

log = logging.getLogger("windlass")

FIRST_PAUSE = 0.5  # seconds
LONGEST_PAUSE = 30.0  # seconds
STEADY = 10.0  # seconds: the death of a child that ran this long counts as the first one


class Supervisor:
    """Runs `processes` children, numbered from 1; `arguments(number)` is the command line of each."""

    def __init__(self, arguments: Callable[[int], Sequence[str]], *, processes: int) -> None:
        self._arguments = arguments
        self._processes = processes
        self._systemd = Systemd()
        self._stopping = asyncio.Event()
        self._signals: list[int] = []
        self.children: dict[int, WindlassProcess] = {}

    async def run(self) -> int:
        """Run until a signal asks to stop and every child has ended; returns the exit code."""
        loop = asyncio.get_running_loop()
        for wanted in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(wanted, self.stop, wanted)
        loop.add_signal_handler(signal.SIGUSR1, self._log_stacks)
        log.info("supervising %d worker processes", self._processes)
        self._systemd.tell("READY=1")
        async with self._systemd.watched(), asyncio.TaskGroup() as group:
            for number in range(1, self._processes + 1):
                group.create_task(self._keep_running(number))
        log.info("every worker process has ended")
        return 128 + self._signals[-1] if len(self._signals) > 1 else 0

    def stop(self, number: int) -> None:
        """First call: the children stop gracefully. Second: they end at once. Third: they are killed."""
        self._systemd.tell("STOPPING=1")
        self._signals.append(number)
        self._stopping.set()
        if len(self._signals) == 1:
            log.info("%s: stopping %d workers", signal.Signals(number).name, len(self.children))
        for child in self.children.values():
            child.signal(signal.SIGTERM if len(self._signals) < 3 else signal.SIGKILL)

    def _log_stacks(self) -> None:
        for child in self.children.values():
            child.signal(signal.SIGUSR1)

    async def _keep_running(self, number: int) -> None:
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            how = await self._run_child(number)
            if self._stopping.is_set():
                return
            failures = 1 if time.monotonic() - began >= STEADY else failures + 1
            wait = restart_delay(failures)
            log.warning("worker process %d ended (%s); a new one starts in %.1f s", number, how, wait)
            try:
                async with asyncio.timeout(wait):
                    await self._stopping.wait()
            except TimeoutError:
                pass

    async def _run_child(self, number: int) -> str:
        """Run one child to its end; returns how it ended."""
        child = WindlassProcess(self._arguments(number))
        try:
            await child.start()
        except OSError as error:
            return f"it could not be started: {error}"
        self.children[number] = child
        try:
            if self._stopping.is_set():  # the signal came while the child was being started
                child.signal(signal.SIGTERM)
            return describe_exit(await child.wait())
        finally:
            del self.children[number]


def restart_delay(failures: int) -> float:
    """Seconds before the next start: half of a bound that doubles, plus a random part of the other half."""
    bound = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 10))
    return bound * random.uniform(0.5, 1.0)

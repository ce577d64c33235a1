"""The protocol of sd_notify(3): a process tells systemd that it is ready, that it is alive, and that it stops.

A unit with Type=notify and WatchdogSec= starts what depends on it when the worker is registered, and replaces a worker
whose event loop stands still. Without NOTIFY_SOCKET nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

log = logging.getLogger("windlass")

SIGNS = 3  # of life per WatchdogSec
MICROSECONDS = 1_000_000


class Systemd:
    """The way to the service manager. Variables are taken out of the environment: no child speaks for this process."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        microseconds = os.environ.pop("WATCHDOG_USEC", "")
        own = os.environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._every = int(microseconds) / MICROSECONDS / SIGNS if own and microseconds.isdigit() else None

    def tell(self, state: str) -> None:
        """Send one state; a manager that does not listen ends no worker."""
        if not self._address:
            return
        name = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)  # a full socket must not stop the loop
                channel.sendto(state.encode(), name)
        except OSError as error:
            log.warning("systemd was not told %s: %s", state, error)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Send signs of life from this event loop inside the block."""
        signs = asyncio.ensure_future(self._give_signs())
        try:
            yield
        finally:
            signs.cancel()
            with suppress(asyncio.CancelledError):
                await signs

    async def _give_signs(self) -> None:
        while self._every is not None and self._address:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(self._every)

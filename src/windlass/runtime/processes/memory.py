"""How much memory a child uses, and the watch that ends it above its limit."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("windlass")

CHECK_EVERY = 0.2  # seconds
PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes
PROC = Path("/proc")


def rss(pid: int) -> int | None:
    """Resident bytes of a process, shared ones included; None where the system does not report it."""
    try:
        return int((PROC / str(pid) / "statm").read_bytes().split()[1]) * PAGE
    except (OSError, ValueError, IndexError):
        return None


class MemoryWatch:
    """Measures one process while a job runs in it."""

    def __init__(self, pid: int, limit: int | None, *, exceeded: Callable[[int], None]) -> None:
        self._pid = pid
        self._limit = limit
        self._exceeded = exceeded
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        if self._limit is not None:
            self._check()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        assert self._limit is not None
        used = rss(self._pid)
        if used is not None and used > self._limit:
            self._exceeded(used)
        else:
            self._timer = asyncio.get_running_loop().call_later(CHECK_EVERY, self._check)


def warn_if_unmeasured() -> None:
    """Logged once per worker with a memory limit."""
    if rss(os.getpid()) is None:
        log.warning("memory limits are not watched here: %s has no figures of processes", PROC)


def mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"

"""A clock that moves only when a test says so."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class ManualClock:
    """Stands still until `advance`. Sleepers may sit on several event loops, in several threads."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._elapsed = timedelta()
        self._sleepers: dict[asyncio.Future[None], timedelta] = {}
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return self._start + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed.total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Return when the clock was advanced so far."""
        woken = asyncio.get_running_loop().create_future()
        with self._lock:
            due = self._elapsed + timedelta(seconds=seconds)
            if due > self._elapsed:
                self._sleepers[woken] = due
            else:
                woken.set_result(None)
        try:
            await woken
        finally:
            with self._lock:
                self._sleepers.pop(woken, None)

    def advance(self, seconds: float) -> None:
        """Move on, and wake whoever has slept long enough, the earliest first. From any thread."""
        with self._lock:
            self._elapsed += timedelta(seconds=seconds)
            due = sorted((when, place) for place, when in enumerate(self._sleepers.values()) if when <= self._elapsed)
            sleepers = list(self._sleepers)
            for _, place in due:
                woken = sleepers[place]
                woken.get_loop().call_soon_threadsafe(_wake, woken)


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)

"""The lines of attempts that go well: a limit per second at INFO, and one line for all that are beyond it.

Two lines of a job cost the worker about as much time as half of a job that does nothing. Below the limit each start and
each end has its line; a worker that is faster counts the others. Failures, deaths and lost leases always have lines.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from windlass.clock import spell
from windlass.model.outcome import Ending
from windlass.observe.events import AttemptEnded
from windlass.observe.logs import ROUTINE

MOST_ROUTINE = 100  # lines per SPAN: 50 jobs with a start and an end
SPAN = 1.0  # seconds
MOST_TYPES = 100  # of jobs, in the fields of one line; the others are counted as `other`
LISTED = 10  # queues, phases or types in the text of a line; a field has all of them

log = logging.getLogger(ROUTINE)


class RoutineLines:
    """Limits the lines of attempts that go well. Each SPAN has one line for all that were not written."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._lines = 0
        self._clear()

    def _clear(self) -> None:
        self._started = self._ended = 0
        self._seconds = self._longest = 0.0
        self._endings: Counter[str] = Counter()
        self._types: Counter[str] = Counter()

    def admits(self) -> bool:
        """Whether one more line is written. At DEBUG each line is."""
        now = time.monotonic()
        if now - self._since >= SPAN:
            self.flush()
            self._since, self._lines = now, 0
        self._lines += 1
        return self._lines <= MOST_ROUTINE or log.isEnabledFor(logging.DEBUG)

    def write(self, text: str, values: tuple[object, ...], fields: dict[str, object]) -> None:
        """Write a line that was admitted. Its place in the code is not looked up, which would take a fifth longer."""
        log.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, text, values, None, extra=fields))

    def count_start(self) -> None:
        self._flush_later()
        self._started += 1

    def count_end(self, end: AttemptEnded) -> None:
        self._flush_later()
        self._ended += 1
        self._seconds += end.elapsed
        self._longest = max(self._longest, end.elapsed)
        self._endings[end.ending.value] += 1
        kind = end.job.type
        self._types[kind if kind in self._types or len(self._types) < MOST_TYPES else "other"] += 1

    def _flush_later(self) -> None:
        """Nothing may happen after a burst: its last line comes by the clock."""
        if not (self._started or self._ended):
            with suppress(RuntimeError):  # no event loop: the next line, or the worker's end, flushes
                asyncio.get_running_loop().call_later(SPAN, self.flush)

    def flush(self) -> None:
        """Write the line that counts."""
        if not (self._started or self._ended):
            return
        mean = self._seconds / self._ended if self._ended else 0.0
        fields = {
            "kind": "attempts_counted",
            "started": self._started,
            "ended": self._ended,
            "success_count": self._endings[Ending.SUCCEEDED.value],
            "endings": dict(self._endings),
            "types": dict(self._types),
            "job_duration_ms": round(mean * 1000, 3),
            "longest_ms": round(self._longest * 1000, 3),
        }
        text = "%d more attempts started and %d ended%s; mean %s, longest %s; DEBUG logs each"
        values = (self._started, self._ended, say_counts(dict(self._types)), spell(mean), spell(self._longest))
        self._clear()
        log.info(text, *values, extra=fields)


def say_counts(counts: dict[str, int]) -> str:
    """` (mail 3, default 2)`, without phases that have none."""
    said = listed([f"{name} {count}" for name, count in counts.items() if count])
    return f" ({said})" if said else ""


def listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - LISTED} more" if len(every) > LISTED else ""
    return ", ".join(every[:LISTED]) + more

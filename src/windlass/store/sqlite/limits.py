"""The limit keys of the jobs that one claim reads: how much room each has left, and which jobs are parked on it.

The claim holds the write lock, so that no limit counter changes meanwhile: room is counted here and written once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from windlass.store.parts.statements import run
from windlass.store.sql import query
from windlass.store.sqlite.functions import UNLIMITED, room, token_at
from windlass.store.sqlite.rows import array, decode_keys, span

if TYPE_CHECKING:
    import sqlite3

    from windlass.store.sqlite.session import Runner

MOST_PARKED = 5_000  # jobs per claim: further ones are only skipped, or a claim would make other writers wait

Row = tuple[int | None, int, float | None, int, int, int | None]
"""most, used, period, burst, next_at, held_until"""


class LimitCounters:
    """Admits or parks one job after the other, in the order of the claim."""

    def __init__(self, runner: Runner, connection: sqlite3.Connection, now: int) -> None:
        self._runner = runner
        self._connection = connection
        self._now = now
        self._rows: dict[str, Row] = {}
        self._left: dict[str, int] = {}  # room by key
        self._full: dict[str, str] = {}  # a job's limits as they are stored → the key that has no room
        self._taken: Counter[str] = Counter()
        self._parked: dict[str, str] = {}  # job → key
        self.refused = 0

    def try_admit(self, job: str, limits: str) -> bool:
        """Take a slot of each of the job's keys; if one has no room, park the job on it and return False."""
        # Room only shrinks during a claim: a key that was full is not checked again, a hundred thousand times.
        full = self._full.get(limits)
        if full is None:
            keys = decode_keys(limits)
            full = self._find_full(keys)
            if full is None:
                for key in keys:
                    self._left[key] -= 1
                    self._taken[key] += 1
                return True
            self._full[limits] = full
        self.refused += 1
        if len(self._parked) < MOST_PARKED:
            self._parked[job] = full
        return False

    def full_keys(self) -> str | None:
        """The full keys, as a JSON array: a statement may skip their jobs; None while more jobs can be parked."""
        if len(self._parked) < MOST_PARKED:
            return None
        return array(key for key, left in self._left.items() if left <= 0)

    def _find_full(self, keys: list[str]) -> str | None:
        for key in keys:
            if self._left.get(key, 1) <= 0:
                return key
        for key in keys:
            if key not in self._left:
                self._load(key)
            if self._left[key] <= 0:
                return key
        return None

    def _load(self, key: str) -> None:
        row = self._find(key)
        if row is None:
            self._runner.execute(run("make_limit_counters", [key]))
            row = self._find(key)
        if row is not None:
            self._rows[key] = row
        self._left[key] = UNLIMITED if row is None else room(*row, self._now)

    def _find(self, key: str) -> Row | None:
        row: Row | None = self._connection.execute(query("sqlite", "limit_counter"), {"key": key}).fetchone()
        return row

    def write(self) -> None:
        """Write the slots that were taken, and the jobs that are parked."""
        if self._taken:
            self._runner.execute(run("take_slots", self._taken))
        if self._parked:
            self._runner.execute(run("park", list(self._parked.items())))

    def next_token(self) -> int | None:
        """When the first of the buckets that are empty now has a token again, or its hold ends."""
        times = [
            self._token_after(row, self._taken[key])
            for key, row in self._rows.items()
            if self._left[key] <= 0 and _comes_by_time(row, self._now)
        ]
        return min(times, default=None)

    def _token_after(self, row: Row, taken: int) -> int:
        _, _, period, burst, next_at, held_until = row
        if period is not None:
            next_at = max(next_at, self._now) + span(taken * period)
        return token_at(period, burst, next_at, held_until, self._now)


def _comes_by_time(row: Row, now: int) -> bool:
    """Whether room comes back by time: in a bucket, or after a hold. A slot comes back when a job releases it."""
    _, _, period, _, _, held_until = row
    return period is not None or (held_until is not None and held_until > now)

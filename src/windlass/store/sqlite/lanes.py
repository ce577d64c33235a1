"""How a claim reads lanes: the due jobs of one tenant, in order, and only as many as it needs."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from windlass.store.sql import ordered_query, query
from windlass.store.sqlite.limits import MOST_PARKED
from windlass.store.sqlite.rows import Parameters, array, span

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from windlass.store.protocol import Claim
    from windlass.store.sqlite.limits import LimitCounters

Due = tuple[int, str, str | None]
"""A due job: when it became due (or was created), its id, its limits."""

BEGINNING: Due = (-(2**63), "", None)
ALL = -1


class Lane(NamedTuple):
    """Jobs that differ for a claim only in their time."""

    queue: str
    phase_rank: int
    priority: int
    tenant: str
    limited: bool  # its jobs have limits


class Selection:
    """The jobs that one claim has chosen so far, and the statements that read more."""

    def __init__(
        self, connection: sqlite3.Connection, now: int, until: int, claim: Claim, limit_counters: LimitCounters
    ) -> None:
        self._connection = connection
        self._claim = claim
        self._limit_counters = limit_counters
        self._order = "created_at" if claim.by_creation else "run_at"
        self._common: Parameters = {
            "types": array(claim.types),
            "suspects": claim.suspects.value,
            "untouched": span(max(claim.untouched, claim.overdue)),
            "now": now,
            "until": until,
        }
        self.chosen: dict[str, None] = {}

    @property
    def room(self) -> int:
        return self._claim.room - len(self.chosen)

    def choose(self, due: Due) -> bool:
        """Choose this job, unless it is chosen already or one of its keys is full."""
        _, ident, limits = due
        if ident in self.chosen or (limits is not None and not self._limit_counters.try_admit(ident, limits)):
            return False
        self.chosen[ident] = None
        return True

    def select_oldest(self, lanes: list[Lane]) -> None:
        """Ageing: a few places go to the oldest due jobs of any priority, at every pace."""
        places = min(self._claim.aged, self._claim.room)
        if not places:
            return
        found = [
            self._read_limited("run_at", lane)
            if lane.limited
            else iter(self._due_jobs("run_at", lane, places).fetchall())
            for lane in lanes
        ]
        for job in heapq.merge(*found):
            places -= self.choose(job)
            if not places:
                return

    def page(self, lane: Lane, size: int, after: Due = BEGINNING) -> list[Due]:
        """The next jobs of a lane, whether or not their keys have room."""
        return self._due_jobs(self._order, lane, size, after).fetchall()

    def read_limited(self, lane: Lane) -> Iterator[Due]:
        """The jobs of a lane with limits, one by one: 100,000 of a full key may come before one of a free key.

        When no more of them can be parked, the statement leaves out the keys that are full by then, at half the cost
        per job. It has an open cursor, which is closed with this generator.
        """
        return self._read_limited(self._order, lane)

    def _read_limited(self, order: str, lane: Lane) -> Iterator[Due]:
        after: Due | None = BEGINNING
        while after is not None:
            begun, after, refused = after, None, self._limit_counters.refused
            for job in self._due_jobs(order, lane, ALL, begun, self._limit_counters.full_keys()):
                yield job
                # Not in the order of creation: there every statement sorts the lane again.
                if order == "run_at" and self._limit_counters.refused - refused == MOST_PARKED:
                    after = job
                    break

    def _due_jobs(
        self, order: str, lane: Lane, limit: int, after: Due = BEGINNING, full: str | None = None
    ) -> sqlite3.Cursor:
        at, ident, _ = after
        begin = {"after_at": at, "after_id": ident, "limit": limit, "full": full}
        statement = ordered_query("sqlite", "due_jobs", order)
        return self._connection.execute(statement, self._common | lane._asdict() | begin)

    def next_due(self, lane: Lane) -> tuple[int | None, int | None]:
        """When the next job of a lane becomes due; and when it was written, if it had been due at that time."""
        row = self._connection.execute(query("sqlite", "next_due_in_lane"), self._common | lane._asdict()).fetchone()
        return (None, None) if row is None else (row[0], row[1])


class LaneReader:
    """Reads the due jobs of one tenant in one queue and level, those with and those without limits, by time."""

    def __init__(self, selection: Selection, lanes: list[Lane]) -> None:
        self._selection = selection
        self._lanes = lanes
        self._page = 0  # how many jobs without limits are read at a time
        self._first: dict[Lane, list[Due]] = {}  # first pages that `ages` read already
        self._jobs: Iterator[Due] | None = None
        self.exhausted = False

    def ages(self, most: int) -> list[tuple[int, str]]:
        """The times of the first jobs, whether or not their keys have room."""
        self._page = most
        self._first = {lane: self._selection.page(lane, most) for lane in self._lanes}
        return [(at, ident) for page in self._first.values() for at, ident, _ in page]

    def take(self, count: int) -> int:
        """Choose up to `count` of the next jobs; returns how many were chosen."""
        if self._jobs is None:
            self._page = self._page or count + len(self._selection.chosen)  # aged jobs are read a second time
            lanes = [self._selection.read_limited(lane) if lane.limited else self._pages(lane) for lane in self._lanes]
            self._jobs = lanes[0] if len(lanes) == 1 else heapq.merge(*lanes)
        taken = 0
        while taken < count:
            job = next(self._jobs, None)
            if job is None:
                self.exhausted = True
                break
            taken += self._selection.choose(job)
        return taken

    def _pages(self, lane: Lane) -> Iterator[Due]:
        """Whole pages instead of an open cursor: a second open cursor of one statement would be compiled again."""
        page = self._first[lane] if lane in self._first else self._selection.page(lane, self._page)
        yield from page
        while len(page) == self._page:
            page = self._selection.page(lane, self._page, page[-1])
            yield from page

    def close(self) -> None:
        """Drop the cursors: their rows are about to be written."""
        self._jobs = None

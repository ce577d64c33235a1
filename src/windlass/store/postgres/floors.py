"""Claim floors: how a claim avoids walking over the dead.

Under a held snapshot (a report, a dump) the index entries of finished jobs cannot be removed and pile up in front of
the first live one. A floor per lane (queue, phase rank, priority, tenant) remembers the last (run_at, id) that this
worker has drained past; a claim looks only from there on. One claim per poll goes without it and finds what committed
late. Correctness never depends on a floor, only on the rescan: a floor that is wrong costs one poll. Lanes of jobs with
limits have none: a job that was parked comes back to its old place.

Both run_at and id, because a whole COPY has one run_at: 10,065 buffers for a claim of one among 5,000 dead entries with
run_at alone, 23 with both.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from windlass.model.job import Job

KEPT_SCANS = 60
"""A lane that was empty in so many scans is forgotten; until then a woken worker looks there without a scan."""


class Lane(NamedTuple):
    """A run of the claim index: jobs that differ only in run_at and id."""

    phase_rank: int
    urgency: int  # -priority
    queue: str
    tenant: str
    limited: bool  # its jobs have limits


class Floor(NamedTuple):
    """Where to begin in a lane."""

    run_at: datetime
    id: UUID


BEGINNING = Floor(datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))


class Floors:
    """The lanes one worker knows, with their floors."""

    def __init__(self) -> None:
        self._floors: dict[Lane, Floor] = {}
        self._unseen: dict[Lane, int] = {}

    def scanned(self, lanes: Iterable[Lane]) -> None:
        """A scan of the index saw these lanes: learn new ones, forget those that stay empty."""
        seen = set(lanes)
        for lane in seen:
            self._floors.setdefault(lane, BEGINNING)
            self._unseen[lane] = 0
        for lane in [lane for lane in self._floors if lane not in seen]:
            self._unseen[lane] += 1
            if self._unseen[lane] > KEPT_SCANS:
                del self._floors[lane], self._unseen[lane]

    def lanes(self, queues: tuple[str, ...] | None, *, rescan: bool) -> list[tuple[Lane, Floor]]:
        """The lanes of a claim, each with where to begin."""
        chosen = sorted(lane for lane in self._floors if queues is None or lane.queue in queues)
        return [(lane, BEGINNING if rescan or lane.limited else self._floors[lane]) for lane in chosen]

    def lower(self) -> None:
        """The clock was set back: what comes now is below every floor."""
        self._floors = dict.fromkeys(self._floors, BEGINNING)

    def drained(self, jobs: Iterable[Job]) -> None:
        """These were claimed: nothing due is left below the last of each lane. A rescan may lower a floor again."""
        last: dict[Lane, Floor] = {}
        for job in jobs:
            if job.limits is not None:
                continue  # one that is let in again comes below any floor
            lane = Lane(job.phase_rank, -job.priority, job.queue, job.tenant, False)
            floor = Floor(job.run_at, job.id)
            if lane not in last or last[lane] < floor:
                last[lane] = floor
        self._floors.update(last)
        for lane in last:
            self._unseen.setdefault(lane, 0)

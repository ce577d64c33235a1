"""Claim floors: where a claim begins in a lane, so that it does not read the index entries of finished jobs.

Under a held snapshot (a report, a dump) the index entries of finished jobs cannot be removed and pile up in front of
the first live entry. A floor per lane (queue, phase rank, priority, tenant) keeps the last (run_at, id) that this
worker claimed; a claim reads the lane only from there on. One claim per poll ignores the floors and finds jobs that
committed late. Correctness never depends on a floor, only on the rescan: a wrong floor costs one poll. Lanes of jobs
with limits have no floor: a parked job comes back to its old place.

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
"""A lane is forgotten after it was empty in this number of scans. Until then a woken worker reads it without a scan."""


class Lane(NamedTuple):
    """A range of the claim's index: jobs that differ only in run_at and id."""

    phase_rank: int
    urgency: int  # -priority
    queue: str
    tenant: str
    limited: bool  # whether its jobs have limits


class Floor(NamedTuple):
    """Where a claim begins in a lane."""

    run_at: datetime
    id: UUID


BEGINNING = Floor(datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))


class Floors:
    """The lanes that one worker knows, with their floors."""

    def __init__(self) -> None:
        self._floors: dict[Lane, Floor] = {}
        self._unseen: dict[Lane, int] = {}  # scans in a row that found the lane empty

    def record_scan(self, lanes: Iterable[Lane]) -> None:
        """Record the lanes of a scan: add new lanes, forget lanes that stay empty."""
        seen = set(lanes)
        for lane in seen:
            self._floors.setdefault(lane, BEGINNING)
            self._unseen[lane] = 0
        for lane in [lane for lane in self._floors if lane not in seen]:
            self._unseen[lane] += 1
            if self._unseen[lane] > KEPT_SCANS:
                del self._floors[lane], self._unseen[lane]

    def lanes(self, queues: tuple[str, ...] | None, *, rescan: bool) -> list[tuple[Lane, Floor]]:
        """The lanes of a claim, each with its floor."""
        chosen = sorted(lane for lane in self._floors if queues is None or lane.queue in queues)
        return [(lane, BEGINNING if rescan or lane.limited else self._floors[lane]) for lane in chosen]

    def lower(self) -> None:
        """Drop all floors after the clock was set back: jobs that are enqueued now are below every floor."""
        self._floors = dict.fromkeys(self._floors, BEGINNING)

    def record_claimed(self, jobs: Iterable[Job]) -> None:
        """Raise the floor of each lane to its last claimed job: no due job is left below. A rescan may lower it."""
        last: dict[Lane, Floor] = {}
        for job in jobs:
            if job.limits is not None:
                continue  # a job that is unparked comes back below any floor
            lane = Lane(job.phase_rank, -job.priority, job.queue, job.tenant, False)
            floor = Floor(job.run_at, job.id)
            if lane not in last or last[lane] < floor:
                last[lane] = floor
        self._floors.update(last)
        for lane in last:
            self._unseen.setdefault(lane, 0)

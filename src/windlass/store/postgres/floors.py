"""Claim floors: how a claim avoids walking over the dead.

Under a held snapshot (a report, a dump) the index entries of finished jobs cannot be removed and pile up in front of
the first live one. A floor per lane (queue, phase rank, priority) remembers the highest run_at this worker has drained
past; a claim looks only at `run_at >= floor`. One claim per poll goes without it and finds what committed late.
Correctness never depends on a floor, only on the rescan: a floor that is wrong costs one poll.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from windlass.job import Job

BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
KEPT_SCANS = 60
"""A lane that was empty in so many scans is forgotten; until then a woken worker looks there without a scan."""


class Lane(NamedTuple):
    """A run of the claim index: jobs that differ only in run_at and id."""

    phase_rank: int
    urgency: int  # -priority
    queue: str


class Floors:
    """The lanes one worker knows, with their floors."""

    def __init__(self) -> None:
        self._floors: dict[Lane, datetime] = {}
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

    def lanes(self, queues: tuple[str, ...] | None, *, rescan: bool) -> tuple[list[Lane], list[datetime]]:
        """The lanes of a claim in their order, each with where to begin."""
        chosen = sorted(lane for lane in self._floors if queues is None or lane.queue in queues)
        return chosen, [BEGINNING if rescan else self._floors[lane] for lane in chosen]

    def drained(self, jobs: Iterable[Job]) -> None:
        """These were claimed: nothing due is left below the last of each lane. A rescan may lower a floor again."""
        last: dict[Lane, datetime] = {}
        for job in jobs:
            lane = Lane(job.phase_rank, -job.priority, job.queue)
            if lane not in last or last[lane] < job.run_at:
                last[lane] = job.run_at
        self._floors.update(last)
        for lane in last:
            self._unseen.setdefault(lane, 0)

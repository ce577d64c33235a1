"""The claim on SQLite: due jobs of a few lanes are selected in order, and leased in the same transaction.

In:   a Claim of runtime/discovery.py
Out:  due jobs, each with a lease of this worker
Next: runtime/local_queue.py, where discovery puts them

A claim goes level by level (phase rank, then priority), and within a level by queues and tenants:

    lanes → levels → a queue's tenants by weight → the jobs of each by time → limits → the lease

The claim has the file's only write lock. So what one tenant leaves of its quota goes to the others in the same claim,
and the room of limits is counted in memory.
"""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import groupby, islice, pairwise
from typing import TYPE_CHECKING
from uuid import uuid4

from windlass.policy.fairness import Fairness
from windlass.store.parts.admission import unpark_ready
from windlass.store.parts.setback import SetBack
from windlass.store.protocol import Claim, Claimed
from windlass.store.sql import query
from windlass.store.sqlite.lanes import Lane, LaneReader, Selection
from windlass.store.sqlite.limits import LimitCounters
from windlass.store.sqlite.rows import SECOND, array, job, micros, span
from windlass.store.sqlite.session import Runner

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from windlass.clock import Clock
    from windlass.model.job import Job
    from windlass.policy.fairness import Group


class Claimer:
    """Makes the claims of one store, and keeps what one passes to the next: tenants' shares, and the next token."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set_back = SetBack()
        self._fairness = Fairness()
        self._next_token: int | None = None  # microseconds; of the buckets on which jobs may be parked

    def take(self, connection: sqlite3.Connection, now: int, claim: Claim) -> Claimed:
        """Lease up to `claim.room` jobs. The caller's transaction holds the write lock: no other claim runs."""
        alive = connection.execute(query("sqlite", "worker_is_alive"), {"worker": str(claim.worker)}).fetchone()
        if alive is None:
            return Claimed(jobs=[])
        self._observe_clock(now, seen=alive[0])
        runner = Runner(connection, now)
        self._unpark_ready(runner, now, claim)
        lanes = read_lanes(connection, claim.queues, now)
        limit_counters = LimitCounters(runner, connection, now)
        selection = Selection(connection, now, self._until(now - span(claim.overdue)), claim, limit_counters)
        self._select(connection, selection, lanes)
        limit_counters.write()
        self._next_token = _soonest((self._next_token, limit_counters.next_token()))
        jobs = lease_jobs(connection, now, claim, list(selection.chosen)) if selection.chosen else []
        if any(micros(job.run_at) > now for job in jobs):
            self._set_back.found(self._clock.monotonic())
        if len(jobs) == claim.room:
            return Claimed(jobs=jobs)
        due = _soonest([self._next_token, *(self._next_due(selection.next_due(lane), now) for lane in lanes)])
        return Claimed(jobs=jobs, next_due=None if due is None else max(0, due - now) / SECOND)

    def _until(self, now: int) -> int:
        """The time up to which jobs are read: now, or later where the clock was set back."""
        reach = self._set_back.reach(self._clock.monotonic())
        return now if reach is None else max(now, span(reach))

    def _next_due(self, found: tuple[int | None, int | None], now: int) -> int | None:
        """A job that had been due before the clock was set back is due now: the next claim reads that far."""
        due, written = found
        if written is None:
            return due
        known = self._set_back.reach(self._clock.monotonic()) is not None
        self._observe_clock(now, written=written)
        return due if known else now  # once: if it is not claimed then, the clock is not the reason

    def _observe_clock(self, now: int, *, seen: int = 0, written: int = 0) -> None:
        self._set_back.observe(now / SECOND, seen / SECOND, written / SECOND, self._clock.monotonic())

    def _unpark_ready(self, runner: Runner, now: int, claim: Claim) -> None:
        """Make jobs claimable that are parked on a key with room.

        No worker is woken for them: a worker that cannot run what it unparked would wake itself, and unpark the next
        ones, without end.
        """
        if claim.rescan or (self._next_token is not None and self._next_token <= now):
            soonest = runner.execute(unpark_ready())
            self._next_token = None if soonest is None else now + span(soonest)

    def _select(self, connection: sqlite3.Connection, selection: Selection, lanes: list[Lane]) -> None:
        levels = [list(peers) for _, peers in groupby(lanes, key=lambda lane: (lane.phase_rank, lane.priority))]
        if len(levels) > 1:  # a single level is ordered by age already
            selection.select_oldest(lanes)
        several = any(one.queue == other.queue and one.tenant != other.tenant for one, other in pairwise(lanes))
        weights = dict(connection.execute(query("sqlite", "weights"))) if several else {}
        for peers in levels:
            if not selection.room:
                break
            self._serve(selection, peers, weights)

    def _serve(self, selection: Selection, peers: list[Lane], weights: Mapping[str, float]) -> None:
        """One level: places go to queues by the age of their jobs; places that a queue leaves go to the others."""
        queues = [
            QueueShares(self._fairness, weights, selection, list(lanes))
            for _, lanes in groupby(peers, lambda lane: lane.queue)
        ]
        if len(queues) > 1:
            for queue, places in _places(queues, selection.room):
                queue.serve(places)
        for queue in queues:
            queue.serve(selection.room)
        for queue in queues:
            queue.close()


class QueueShares:
    """One queue of one level: its tenants share the places by weight."""

    def __init__(
        self, fairness: Fairness, weights: Mapping[str, float], selection: Selection, lanes: list[Lane]
    ) -> None:
        self._fairness = fairness
        self._weights = weights
        self._group: Group = (lanes[0].phase_rank, -lanes[0].priority, lanes[0].queue)
        self._readers = {
            tenant: LaneReader(selection, list(own)) for tenant, own in groupby(lanes, key=lambda lane: lane.tenant)
        }
        self._taken: Counter[str] = Counter()

    def ages(self, most: int) -> list[tuple[int, str]]:
        """When the first jobs of this queue became due."""
        return sorted(age for reader in self._readers.values() for age in reader.ages(most))[:most]

    def serve(self, places: int) -> None:
        """Give `places` to the tenants by their shares; places that a tenant leaves go to those that have more jobs."""
        while places > 0:
            unserved = [tenant for tenant, reader in self._readers.items() if not reader.exhausted]
            if not unserved:
                return
            for tenant, quota in self._quotas(unserved, places):
                places -= self._take(tenant, min(quota, places))

    def _quotas(self, unserved: list[str], places: int) -> list[tuple[str, int]]:
        if len(self._readers) == 1:  # a tenant that is alone in the queue is not charged virtual time
            return [(unserved[0], places)]
        return self._fairness.quotas(self._group, unserved, places, self._weights)

    def _take(self, tenant: str, places: int) -> int:
        taken = self._readers[tenant].take(places)
        self._taken[tenant] += taken
        return taken

    def close(self) -> None:
        """Record what each tenant got. No tenant counts as short of jobs: its unused places went to another tenant."""
        for reader in self._readers.values():
            reader.close()
        if len(self._readers) == 1:
            return
        quotas = [(tenant, self._taken[tenant]) for tenant in self._readers]
        self._fairness.record_claim(self._group, quotas, self._taken, self._weights, filled=True)


def _places(queues: list[QueueShares], room: int) -> list[tuple[QueueShares, int]]:
    """How many places each queue of a level gets: as many of the level's oldest jobs as are its own."""
    ages = heapq.merge(*[[(age, place) for age in queue.ages(room)] for place, queue in enumerate(queues)])
    counted = Counter(place for _, place in islice(ages, room))
    return [(queues[place], places) for place, places in counted.items()]


def read_lanes(connection: sqlite3.Connection, queues: tuple[str, ...] | None, now: int) -> list[Lane]:
    """Where claimable jobs of these queues are, without what is closed."""
    served = None if queues is None else array(queues)
    found = connection.execute(query("sqlite", "lanes"), {"queues": served, "now": now})
    return [
        Lane(queue, rank, priority, tenant, limited)
        for queue, rank, priority, tenant, *there in found
        for limited in (False, True)
        if there[limited]
    ]


def lease_jobs(connection: sqlite3.Connection, now: int, claim: Claim, idents: list[str]) -> list[Job]:
    lease = {"worker": str(claim.worker), "token": str(uuid4())}
    connection.execute(query("sqlite", "claim"), lease | {"ids": array(idents), "now": now})
    jobs = [job(row) for row in connection.execute(query("sqlite", "claimed_jobs"), lease)]
    if claim.by_creation:
        return sorted(jobs, key=lambda job: (job.phase_rank, -job.priority, job.created_at, job.id))
    return sorted(jobs, key=lambda job: (job.phase_rank, -job.priority, job.run_at, job.id))


def _soonest(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)

"""Claiming on PostgreSQL: leases due jobs from lanes with floors and quotas; one round trip if no job has limits.

In:   a Claim of runtime/discovery.py
Out:  due jobs, each with a lease of this worker
Next: runtime/local_queue.py, where discovery puts them
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import groupby
from typing import NamedTuple
from uuid import UUID, uuid4

from windlass import failpoints
from windlass.clock import Clock
from windlass.model.job import Job
from windlass.policy.fairness import Fairness, Group
from windlass.store.parts.admission import unpark_ready
from windlass.store.parts.setback import SetBack
from windlass.store.parts.statements import run
from windlass.store.postgres import rows
from windlass.store.postgres.connections.pool import ConnectionPool
from windlass.store.postgres.floors import Floor, Floors, Lane
from windlass.store.postgres.reads import PostgresReads
from windlass.store.protocol import Claim, Claimed, Suspects
from windlass.store.sql import ordered_query, query

ROUNDS = 4
"""The most claim statements in one claim: more than one if a round parked jobs or met keys without a counter."""
LOCKED_RETRY = 0.01
"""Seconds until a claim tries a locked counter row again, and the least seconds between two checks of a bucket."""
MOST_SECOND_OFFERS = 200
"""The most tenants in one claim that are offered what other tenants left."""
MOST_PARKED = 5_000
"""The most jobs that one claim parks."""
PARK_EVERY = 8
"""While every claim comes back full, only every 8th claim parks the jobs it skipped."""
SCAN_EVERY = 0.1
"""The least seconds between two scans for lanes: a tenant's first job may be overlooked for this time."""
SCAN_SHARE = 20
"""Scans for lanes take at most one part in 20 of the time."""


class TenantQuotas(NamedTuple):
    """The tenants of one queue and priority, each with the most jobs it gets from this claim."""

    group: Group
    quotas: list[tuple[str, int]]


class LaneQuota(NamedTuple):
    """One lane in a claim: where to begin, and the most jobs to take from it."""

    lane: Lane
    floor: Floor
    quota: int
    skip: int | None = None  # of a lane's second offer: the number of jobs that its first offer covers


class ClaimPlan(NamedTuple):
    """The lanes of one round, in the order in which equal lanes are served, and the tenants' quotas behind them."""

    lanes: list[LaneQuota]
    quotas: list[TenantQuotas]

    @property
    def limited(self) -> bool:
        return any(each.lane.limited for each in self.lanes)


class RoundResult(NamedTuple):
    """What one claim statement returned."""

    jobs: list[tuple[Job, bool]]  # and whether the job was taken for its age
    unknown: list[str]  # keys that have no counter row yet
    refused: int  # candidates that were not claimed because of a key
    busy: int  # the part of them that met a locked counter row
    parked: int  # jobs that were parked
    token_in: float | None = None  # seconds until a bucket that refused a job has its next token

    @property
    def found_full_keys(self) -> bool:
        """Whether keys were found full that were not known to be full: the next claim skips their jobs."""
        return self.refused > self.busy


class ClaimResult:
    """What the rounds of one claim returned together."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.parked = 0
        self.aged = 0  # jobs that were taken for their age
        self.busy = 0  # in the last round: candidates that met a locked counter row
        self.short = self.filled = False

    def add(self, found: RoundResult, wanted: int) -> None:
        self.jobs += [job for job, _ in found.jobs]
        self.parked += found.parked
        self.aged += sum(aged for _, aged in found.jobs)
        self.busy = found.busy
        # Half of the wanted jobs are enough: a few refused candidates are not worth another round trip.
        self.short = 2 * len(self.jobs) < wanted
        self.filled = len(self.jobs) == wanted or (found.refused > 0 and not self.short)


class PostgresClaims(PostgresReads):
    """The part of the store that claims."""

    def __init__(self, pool: ConnectionPool, clock: Clock) -> None:
        super().__init__(pool)
        self.clock = clock
        self._floors = Floors()
        self._set_back = SetBack()
        self._fairness = Fairness()
        self._weights: dict[str, float] = {}
        self._next_scan = 0.0  # when a claim scans for lanes again, on the monotonic clock
        self._full_claims = 0  # claims in a row that filled their room
        self._next_token: float | None = None  # when a bucket may have a token for a parked job, on the monotonic clock

    async def claim(self, claim: Claim) -> Claimed:
        if failpoints.armed:
            failpoints.hit("claim.before")
        claimed = await self._claim(claim)
        # The planner once ran a LIMIT subquery per row and claimed a thousand rows for ten.
        assert len(claimed.jobs) <= claim.room, "a claim returned more than its room"
        if failpoints.armed:
            failpoints.hit("claim.committed")
        return claimed

    async def _claim(self, claim: Claim) -> Claimed:
        rescans = claim.rescan or claim.by_creation
        if rescans or (self._next_token is not None and self._next_token <= self.clock.monotonic()):
            await self._unpark_ready()
        next_due = await self._scan_lanes(claim) if rescans or self._next_scan <= self.clock.monotonic() else None
        result = await self._claim_rounds(claim, rescans=rescans)
        self._full_claims = self._full_claims + 1 if result.filled and result.parked < claim.room else 0
        return Claimed(
            jobs=sorted(result.jobs, key=rows.creation_order if claim.by_creation else rows.claim_order),
            next_due=self._soonest(next_due, busy=result.busy > 0),
            filled=result.filled,
        )

    async def _claim_rounds(self, claim: Claim, *, rescans: bool) -> ClaimResult:
        """Send claim statements until the claim's room is filled or no more jobs can be claimed.

        A busy worker does not park the jobs that it skips at full keys: its next claim comes at once, and by then most
        of these jobs may run. A worker parks them before it goes idle: a released slot wakes a worker for parked jobs
        only.
        """
        result, token = ClaimResult(), uuid4()
        parks = rescans or self._full_claims % PARK_EVERY == 0
        for _ in range(ROUNDS):
            room = claim.room - len(result.jobs)
            plan = self._plan(claim, room, rescans=rescans)
            if not plan.lanes:
                break
            aged = claim.aged - result.aged
            found = await self._send(claim, plan, room, aged=aged, token=token, parks=parks)
            # A claim of suspects alone, or of overdue jobs, skips other due jobs: no floor may hide these.
            moves_floors = not (claim.by_creation or claim.overdue or claim.suspects is Suspects.ONLY)
            others_may_fill = self._record(plan, found, room, moves_floors=moves_floors)
            result.add(found, claim.room)
            self._expect_token(found.token_in)
            if found.unknown:
                await self._create_counters(found.unknown)
            goes_idle = plan.limited and not (result.filled or parks or found.unknown)
            if len(result.jobs) == claim.room or not (
                found.unknown or others_may_fill or goes_idle or (found.found_full_keys and result.short)
            ):
                break
            parks |= goes_idle
        return result

    async def _send(
        self, claim: Claim, plan: ClaimPlan, room: int, *, aged: int, token: UUID, parks: bool
    ) -> RoundResult:
        """Send one claim statement: `claim`, or `claim_limited` if jobs with limits may be among the candidates."""
        lanes = [each.lane for each in plan.lanes]
        priorities = {(lane.phase_rank, lane.urgency) for lane in lanes}
        arguments = [
            claim.worker,
            room,
            token,
            claim.types,
            min(aged, room) if len(priorities) > 1 else 0,  # jobs of one priority are in the order of age already
            claim.suspects.value,
            max(claim.untouched, claim.overdue),
            [lane.queue for lane in lanes],
            [lane.phase_rank for lane in lanes],
            [lane.urgency for lane in lanes],
            [lane.tenant for lane in lanes],
            [lane.limited for lane in lanes],
            [each.quota for each in plan.lanes],
            [each.floor.run_at for each in plan.lanes],
            [each.floor.id for each in plan.lanes],
            [each.skip for each in plan.lanes],
            len({lane.queue for lane in lanes}) > 1 or len({lane.limited for lane in lanes}) > 1,
            self._set_back.reach(self.clock.monotonic()),
            claim.overdue,
        ]
        order = "created_at" if claim.by_creation else "run_at"
        if not plan.limited:
            records = await self._fetch(ordered_query("postgres", "claim", order), *arguments)
            return RoundResult([(rows.job(record), record["aged"]) for record in records], [], 0, 0, 0)
        arguments.append(MOST_PARKED if parks else 0)
        records = await self._fetch(ordered_query("postgres", "claim_limited", order), *arguments)
        first = records[0]
        claimed = [(rows.job(record), record["aged"]) for record in records if record["id"] is not None]
        return RoundResult(
            claimed, first["unknown"] or [], first["refused"], first["busy"], first["parked"], first["token_in"]
        )

    # Lanes and quotas

    async def _scan_lanes(self, claim: Claim) -> float | None:
        """Read where claimable jobs are; returns the seconds until the next job that is not due yet."""
        began = self.clock.monotonic()
        records = await self._fetch(query("postgres", "lanes"), claim.types)
        ended = self.clock.monotonic()
        self._next_scan = ended + max(SCAN_EVERY, SCAN_SHARE * (ended - began))
        self._floors.record_scan(rows.lane(record) for record in records)
        for record in records:
            if self._set_back.observe(record["clock"], record["seen"], record["written"], ended):
                self._floors.lower()
        self._weights |= {record["tenant"]: record["weight"] for record in records}
        waits = [
            record["next_in"]
            for record in records
            if record["next_in"] is not None and (claim.queues is None or record["queue"] in claim.queues)
        ]
        return max(0.0, min(waits)) if waits else None

    def _plan(self, claim: Claim, room: int, *, rescans: bool) -> ClaimPlan:
        """The lanes of a claim: first each tenant's quota, then a second offer of what other tenants left.

        The second offer comes before lower priorities: what one tenant does not use belongs to the others first.
        """
        lanes: list[LaneQuota] = []
        quotas_of_groups: list[TenantQuotas] = []
        known = self._floors.lanes(claim.queues, rescan=rescans)
        for group, members in groupby(known, key=lambda each: group_of(each[0])):
            of_tenant: dict[str, list[tuple[Lane, Floor]]] = {}
            for lane, floor in members:
                of_tenant.setdefault(lane.tenant, []).append((lane, floor))
            quotas = self._fairness.quotas(group, list(of_tenant), room, self._weights)
            quotas_of_groups.append(TenantQuotas(group, quotas))
            lanes += [LaneQuota(*each, quota) for tenant, quota in quotas for each in of_tenant[tenant]]
            if len(of_tenant) > 1:
                offered = dict(quotas)
                without_quota = [tenant for tenant in of_tenant if tenant not in offered]
                again = [tenant for tenant, quota in quotas if quota < room] + without_quota
                lanes += [
                    LaneQuota(*each, room, offered.get(tenant, 0))
                    for tenant in again[: None if claim.aged else MOST_SECOND_OFFERS]
                    for each in of_tenant[tenant]
                ]
        return ClaimPlan(lanes, quotas_of_groups)

    def _record(self, plan: ClaimPlan, found: RoundResult, room: int, *, moves_floors: bool) -> bool:
        """Move the floors and the tenants' shares by what a round claimed; whether other tenants may fill the room."""
        # A job that was taken for its age may be the only one from its lane: its lane is not drained up to it.
        # A job of the future, which was due before the clock was set back, is no evidence about jobs that come now.
        if moves_floors:
            self._floors.record_claimed(job for job, aged in found.jobs if not (aged or is_ahead(job)))
        if any(is_ahead(job) for job, _ in found.jobs):
            self._set_back.found(self.clock.monotonic())
        taken: dict[Group, Counter[str]] = {}
        by_age: Counter[tuple[Group, str]] = Counter()
        for job, aged in found.jobs:
            group = (job.phase_rank, -job.priority, job.queue)
            taken.setdefault(group, Counter())[job.tenant] += 1
            by_age[group, job.tenant] += aged
        filled = len(found.jobs) >= room or found.refused > 0
        others_may_fill = False
        for group, quotas in plan.quotas:
            got = taken.get(group, Counter())
            left = any(got[tenant] - by_age[group, tenant] > quota for tenant, quota in quotas)
            others_may_fill |= self._fairness.record_claim(
                group, quotas, got, self._weights, filled=filled, reassigned=left
            )
        return others_may_fill

    # Parked jobs

    async def _unpark_ready(self) -> None:
        await self._fetch(query("postgres", "count_slots"))
        self._next_token = None
        self._expect_token(await self._run_one_by_one(unpark_ready))

    async def _create_counters(self, keys: list[str]) -> None:
        """Make the counter rows of new keys, and count their slots if jobs of these keys run already."""
        made = await self._run_one_by_one(partial(run, "make_limit_counters", sorted(keys)))
        if not all(counted for _, counted in made):
            await self._fetch(query("postgres", "count_slots"))

    def _expect_token(self, wait: float | None) -> None:
        if wait is not None:
            at = self.clock.monotonic() + wait
            self._next_token = at if self._next_token is None else min(self._next_token, at)

    def _soonest(self, next_due: float | None, *, busy: bool) -> float | None:
        times = [] if next_due is None else [next_due]
        if self._next_token is not None:
            times.append(max(LOCKED_RETRY, self._next_token - self.clock.monotonic()))
        if busy:
            times.append(LOCKED_RETRY)
        return min(times, default=None)


def is_ahead(job: Job) -> bool:
    """Whether the job was due after the clock that its claim read: the clock was set back."""
    return job.claimed_at is not None and job.run_at > job.claimed_at


def group_of(lane: Lane) -> Group:
    return (lane.phase_rank, lane.urgency, lane.queue)

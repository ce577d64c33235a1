"""Claiming on PostgreSQL: lanes with floors and shares in, leased jobs out; one round trip where nobody has limits."""

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
from windlass.store.postgres.floors import Floor, Floors, Lane
from windlass.store.postgres.pool import Pool
from windlass.store.postgres.reads import Looks
from windlass.store.protocol import Claim, Claimed, Suspects
from windlass.store.sql import ordered_query, query

ROUNDS = 4  # claims in a row, where jobs that were found had to be parked or met a key for the first time
BUSY = 0.01  # seconds until a turnstile that somebody held is looked at again, and between two looks at a bucket
MOST_AGAIN = 200  # tenants that are offered what others left, in one claim
MOST_PARKED = 5_000  # of those that a claim had to walk past
TIDY = 8  # of claims that fill their room one after the other, one in so many parks whom it walked past
SCAN_EVERY = 0.1  # seconds at least between two looks for lanes: so long may the first job of a tenant be overlooked
SCAN_SHARE = 20  # such a look may take one part in so many of the time


class Share(NamedTuple):
    """The tenants of one queue and priority, each with how many it may have of this claim."""

    group: Group
    quotas: list[tuple[str, int]]


class Offer(NamedTuple):
    """A lane in a claim: where to begin, how many at most, and how many of it were offered before in the same claim."""

    lane: Lane
    floor: Floor
    quota: int
    skip: int | None = None


class Wish(NamedTuple):
    """The lanes of one claim, in the order in which equals are served, and the shares they come from."""

    offers: list[Offer]
    shares: list[Share]

    @property
    def limited(self) -> bool:
        return any(offer.lane.limited for offer in self.offers)


class Found(NamedTuple):
    """What one statement gave."""

    jobs: list[tuple[Job, bool]]  # and whether it came by its age
    unknown: list[str]  # keys that have no turnstile yet
    refused: int  # candidates that were turned away
    busy: int  # of these: because somebody holds a turnstile
    parked: int  # jobs that were taken out of the way
    token_in: float | None = None  # seconds until a bucket that turned somebody away has its next token

    @property
    def crowds(self) -> bool:
        """Keys were found full that were not known to be: the next claim walks past their jobs."""
        return self.refused > self.busy


class Haul:
    """What the rounds of one claim gave together."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.parked = 0
        self.aged = 0  # came by their age
        self.busy = 0  # in the last round: turned away because somebody held a turnstile
        self.short = self.filled = False

    def add(self, found: Found, wanted: int) -> None:
        self.jobs += [job for job, _ in found.jobs]
        self.parked += found.parked
        self.aged += sum(aged for _, aged in found.jobs)
        self.busy = found.busy
        # Half of what was asked for is enough: a few that were turned away are not worth another round trip.
        self.short = 2 * len(self.jobs) < wanted
        self.filled = len(self.jobs) == wanted or (found.refused > 0 and not self.short)


class Claiming(Looks):
    """The half of the store that claims."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        super().__init__(pool)
        self.clock = clock
        self._floors = Floors()
        self._set_back = SetBack()
        self._fairness = Fairness()
        self._weights: dict[str, float] = {}
        self._next_scan = 0.0  # when a claim looks for new lanes again, on the monotonic clock
        self._full_claims = 0  # in a row that filled their room
        self._next_token: float | None = None  # when a bucket with jobs at it may let one in, on the monotonic clock

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
        anew = claim.rescan or claim.by_creation
        if anew or (self._next_token is not None and self._next_token <= self.clock.monotonic()):
            await self._let_in()
        next_due = await self._scan_lanes(claim) if anew or self._next_scan <= self.clock.monotonic() else None
        haul = await self._haul(claim, anew=anew)
        self._full_claims = self._full_claims + 1 if haul.filled and haul.parked < claim.room else 0
        return Claimed(
            jobs=sorted(haul.jobs, key=rows.creation_order if claim.by_creation else rows.claim_order),
            next_due=self._soonest(next_due, busy=haul.busy > 0),
            filled=haul.filled,
        )

    async def _haul(self, claim: Claim, *, anew: bool) -> Haul:
        """Rounds of one claim, until its room is filled or nothing more is to be had.

        A busy worker leaves whom it walks past at full keys where they are: its next claim comes at once, and by then
        most of them may run. Before it rests it parks them: a slot that comes back wakes for the parked only.
        """
        haul, token = Haul(), uuid4()
        parks = anew or self._full_claims % TIDY == 0
        for _ in range(ROUNDS):
            room = claim.room - len(haul.jobs)
            wish = self._wish(claim, room, anew=anew)
            if not wish.offers:
                break
            aged = claim.aged - haul.aged
            found = await self._ask_for(claim, wish, room, aged=aged, token=token, parks=parks)
            # A claim of suspects alone walks past jobs that are due: no floor may hide them.
            moves = not claim.by_creation and claim.suspects is not Suspects.ONLY
            others = self._note(wish, found, room, moves=moves)
            haul.add(found, claim.room)
            self._expect_token(found.token_in)
            if found.unknown:
                await self._meet(found.unknown)
            rests = wish.limited and not (haul.filled or parks or found.unknown)
            if len(haul.jobs) == claim.room or not (found.unknown or others or rests or (found.crowds and haul.short)):
                break
            parks |= rests
        return haul

    async def _ask_for(self, claim: Claim, wish: Wish, room: int, *, aged: int, token: UUID, parks: bool) -> Found:
        offers, lanes = wish.offers, [offer.lane for offer in wish.offers]
        priorities = {(lane.phase_rank, lane.urgency) for lane in lanes}
        arguments = [
            claim.worker,
            room,
            token,
            claim.types,
            min(aged, room) if len(priorities) > 1 else 0,  # jobs of one priority are in the order of age already
            claim.suspects.value,
            claim.rest,
            [lane.queue for lane in lanes],
            [lane.phase_rank for lane in lanes],
            [lane.urgency for lane in lanes],
            [lane.tenant for lane in lanes],
            [lane.limited for lane in lanes],
            [offer.quota for offer in offers],
            [offer.floor.run_at for offer in offers],
            [offer.floor.id for offer in offers],
            [offer.skip for offer in offers],
            len({lane.queue for lane in lanes}) > 1 or len({lane.limited for lane in lanes}) > 1,
            self._set_back.reach(self.clock.monotonic()),
        ]
        order = "created_at" if claim.by_creation else "run_at"
        if not wish.limited:
            records = await self._fetch(ordered_query("postgres", "claim", order), *arguments)
            return Found([(rows.job(record), record["aged"]) for record in records], [], 0, 0, 0)
        arguments.append(MOST_PARKED if parks else 0)
        records = await self._fetch(ordered_query("postgres", "claim_limited", order), *arguments)
        first = records[0]
        claimed = [(rows.job(record), record["aged"]) for record in records if record["id"] is not None]
        return Found(
            claimed, first["unknown"] or [], first["refused"], first["busy"], first["parked"], first["token_in"]
        )

    # Lanes and shares

    async def _scan_lanes(self, claim: Claim) -> float | None:
        """Learn where claimable jobs are; returns the seconds until the next one that is not due yet."""
        began = self.clock.monotonic()
        records = await self._fetch(query("postgres", "lanes"), claim.types)
        ended = self.clock.monotonic()
        self._next_scan = ended + max(SCAN_EVERY, SCAN_SHARE * (ended - began))
        self._floors.scanned(rows.lane(record) for record in records)
        for record in records:
            if self._set_back.look(record["clock"], record["seen"], record["written"], ended):
                self._floors.lower()
        self._weights |= {record["tenant"]: record["weight"] for record in records}
        waits = [
            record["next_in"]
            for record in records
            if record["next_in"] is not None and (claim.queues is None or record["queue"] in claim.queues)
        ]
        return max(0.0, min(waits)) if waits else None

    def _wish(self, claim: Claim, room: int, *, anew: bool) -> Wish:
        """The lanes of a claim: tenants by their shares, and then by what others left.

        The second offer comes before lower priorities: what one tenant does not use belongs to the others first.
        """
        offers: list[Offer] = []
        shares: list[Share] = []
        known = self._floors.lanes(claim.queues, rescan=anew)
        for group, members in groupby(known, key=lambda each: group_of(each[0])):
            of_tenant: dict[str, list[tuple[Lane, Floor]]] = {}
            for lane, floor in members:
                of_tenant.setdefault(lane.tenant, []).append((lane, floor))
            quotas = self._fairness.quotas(group, list(of_tenant), room, self._weights)
            shares.append(Share(group, quotas))
            offers += [Offer(*each, quota) for tenant, quota in quotas for each in of_tenant[tenant]]
            if len(of_tenant) > 1:
                offered = dict(quotas)
                rest = [tenant for tenant in of_tenant if tenant not in offered]
                again = [tenant for tenant, quota in quotas if quota < room] + rest
                offers += [
                    Offer(*each, room, offered.get(tenant, 0))
                    for tenant in again[: None if claim.aged else MOST_AGAIN]
                    for each in of_tenant[tenant]
                ]
        return Wish(offers, shares)

    def _note(self, wish: Wish, found: Found, room: int, *, moves: bool) -> bool:
        """What a claim brought moves the floors and the tenants' shares; whether other tenants may fill the room."""
        # An aged job may be the only one taken from its lane: nothing is drained by that.
        # One of the future, which had been due before the clock was set back, says nothing of those that come now.
        if moves:
            self._floors.drained(job for job, aged in found.jobs if not (aged or ahead(job)))
        if any(ahead(job) for job, _ in found.jobs):
            self._set_back.found(self.clock.monotonic())
        taken: dict[Group, Counter[str]] = {}
        by_age: Counter[tuple[Group, str]] = Counter()
        for job, aged in found.jobs:
            group = (job.phase_rank, -job.priority, job.queue)
            taken.setdefault(group, Counter())[job.tenant] += 1
            by_age[group, job.tenant] += aged
        filled = len(found.jobs) >= room or found.refused > 0
        others = False
        for group, quotas in wish.shares:
            got = taken.get(group, Counter())
            left = any(got[tenant] - by_age[group, tenant] > quota for tenant, quota in quotas)
            others |= self._fairness.granted(group, quotas, got, self._weights, filled=filled, left=left)
        return others

    # Who is parked

    async def _let_in(self) -> None:
        await self._fetch(query("postgres", "count_slots"))
        self._next_token = None
        self._expect_token(await self._run_one_by_one(unpark_ready))

    async def _meet(self, keys: list[str]) -> None:
        """Keys that nobody has met: make their limit_counters, and count who runs already where somebody does."""
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
            times.append(max(BUSY, self._next_token - self.clock.monotonic()))
        if busy:
            times.append(BUSY)
        return min(times, default=None)


def ahead(job: Job) -> bool:
    return job.claimed_at is not None and job.run_at > job.claimed_at


def group_of(lane: Lane) -> Group:
    return (lane.phase_rank, lane.urgency, lane.queue)

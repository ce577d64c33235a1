"""A store whose rates are in Redis. Limits, gates, budgets and everything else stay in the database.

The rates of a program are not declared in the store, so claims do not count them. A claim here takes the tokens of all
jobs that it brings by one call. A job without a token is released at once until its turn: it holds no processor, and
the claim goes on with the jobs behind it.

While Redis is away, jobs with rates wait and all others go on. Nothing starts above its rate.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from windlass.clock import spell
from windlass.errors import BrokerError
from windlass.model import audit
from windlass.model.admission import Closure, Grant, LimitRow, Rule
from windlass.model.delivery import DeliveredClaim, RefusalReason
from windlass.model.job import Job
from windlass.model.outcome import Transition
from windlass.model.state import Verb
from windlass.store.protocol import Claim, Claimed, Finished, Held
from windlass.transport.redis_rates import RedisRates, name_of

if TYPE_CHECKING:
    from windlass.store.protocol import Store

log = logging.getLogger("windlass")

PATIENCE = 1.0  # seconds that a claim waits for Redis: jobs without rates wait with it
AWAY = 5.0  # seconds after which a job asks again while Redis is away; up to twice that, so that not all come at once
ROUNDS = 20  # claims in one call while all that they bring has to wait
UNLIMITED = 2**31 - 1


class RatedStore:
    """A store, with the calls about rates sent to Redis."""

    def __init__(self, store: Store, rates: RedisRates) -> None:
        self._store = store
        self._rates = rates
        self._is_away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def close(self) -> None:
        await self._rates.close()
        await self._store.close()

    # Claims

    async def claim(self, claim: Claim) -> Claimed:
        jobs: list[Job] = []
        soonest: list[float] = []
        for _ in range(ROUNDS):
            found = await self._store.claim(msgspec.structs.replace(claim, room=claim.room - len(jobs)))
            admitted, waits = await self._admit(found.jobs)
            jobs += admitted
            soonest += waits
            if not waits or len(jobs) >= claim.room:
                break
        else:
            soonest.append(0.0)  # there is more
        if found.next_due is not None:
            soonest.append(found.next_due)
        return Claimed(jobs=jobs, next_due=min(soonest, default=None), filled=found.filled)

    async def claim_delivered(self, claim: Claim, jobs: Sequence[UUID]) -> DeliveredClaim:
        found = await self._store.claim_delivered(claim, jobs)
        admitted, _ = await self._admit(found.jobs)
        kept = {job.id for job in admitted}
        # Their rows are due at their turns: what delivers a job that is due later delivers these.
        late = {job.id: RefusalReason.NOT_DUE for job in found.jobs if job.id not in kept}
        return DeliveredClaim(jobs=admitted, refused={**found.refused, **late})

    async def held(self, worker: UUID, known: Collection[UUID] = ()) -> Held:
        """The answer to a claim may be lost before its tokens were taken: they are taken now, perhaps a second time."""
        found = await self._store.held(worker, known)
        admitted, _ = await self._admit(found.jobs)
        return Held(jobs=admitted, unreadable=found.unreadable)

    async def _admit(self, jobs: Sequence[Job]) -> tuple[list[Job], list[float]]:
        """The jobs that may start, and the waits of the others, which are released."""
        asking = {job.id: keys for job in jobs if (keys := self._rates.own_keys(job.limits))}
        if not asking:
            return list(jobs), []
        waits = await self._take(asking)
        late = [(job, waits[job.id]) for job in jobs if waits.get(job.id, 0.0) > 0]
        if late:
            await self._store.finish([_release(job, wait) for job, wait in late])
        return [job for job in jobs if waits.get(job.id, 0.0) <= 0], [wait for _, wait in late]

    async def _take(self, asking: dict[UUID, list[str]]) -> dict[UUID, float]:
        try:
            async with asyncio.timeout(PATIENCE):
                waits = await self._rates.take(asking)
        except (BrokerError, TimeoutError) as error:
            if not self._is_away:
                reason = error if isinstance(error, BrokerError) else f"no answer within {spell(PATIENCE)}"
                log.warning("jobs with rates wait, the others go on: Redis at %s: %s", self._rates.shown, reason)
            self._is_away = True
            return {job: AWAY * random.uniform(1.0, 2.0) for job in asking}
        if self._is_away:
            log.info("jobs with rates go on: Redis at %s answers again", self._rates.shown)
        self._is_away = False
        return waits

    # Holds

    async def finish(self, transitions: Sequence[Transition]) -> Finished:
        """A `Retry` with a bucket holds it before the end is written: of the two, the API's answer is older."""
        return await self._store.finish([await self._hold(each) if each.hold else each for each in transitions])

    async def _hold(self, transition: Transition) -> Transition:
        assert transition.hold is not None, "checked by the caller"
        key, span = transition.hold
        try:
            async with asyncio.timeout(PATIENCE):
                known = await self._rates.hold_back(key, span) is not None
        except (BrokerError, TimeoutError) as error:
            # The end of a job does not wait for Redis. Meanwhile no worker gets a token anyway.
            log.warning("Retry(bucket=%r) holds nothing back: Redis at %s: %s", key, self._rates.shown, error)
            known = bool(self._rates.own_keys([key]))
        return msgspec.structs.replace(transition, hold=None) if known else transition

    async def hold_back(self, bucket: str, seconds: float, *, actor: str | None = None) -> None:
        before = await self._rates.hold_back(bucket, seconds)
        if before is None:
            await self._store.hold_back(bucket, seconds, actor=actor)
        elif actor is not None and before < seconds:
            await self._store.record_action(audit.LIMIT_HELD, actor, f"limit:{bucket}", f"for {spell(seconds)}")

    async def end_hold(self, bucket: str, *, actor: str | None = None) -> bool:
        if not await self._rates.end_hold(bucket):
            return await self._store.end_hold(bucket, actor=actor)
        await self._store.record_action(audit.LIMIT_RELEASED, actor, f"limit:{bucket}", None)
        return True

    async def held_for(self, bucket: str) -> float:
        rows = await self._rows([bucket])
        return max([await self._store.held_for(bucket), *(row.held for row in rows if row.key == bucket)])

    async def closures(self) -> list[Closure]:
        closed = await self._store.closures()
        try:
            async with asyncio.timeout(PATIENCE):  # gates and budgets of this worker wait with it
                held = await self._rates.held_keys()
        except (BrokerError, TimeoutError):  # claims log it
            held = []
        return [*closed, *(Closure(kind="bucket", name=key, state="held") for key in held)]

    # Rates

    async def declare(self, rules: Sequence[Rule]) -> None:
        rates = [rule for rule in rules if rule.period is not None]
        names = [rule.name for rule in rates]
        # A rate that is in the store from before would be counted there as well. A limit that is never full takes its
        # place.
        before = {row.name for row in await self._store.limits(*names) if row.period is not None} if names else set()
        lifted = [Rule(name=name, most=UNLIMITED) for name in names if name in before]
        await self._store.declare([*(rule for rule in rules if rule.period is None), *lifted])
        try:
            await self._rates.declare(rates)
        except BrokerError as error:  # written later; a worker's start does not wait for Redis
            log.warning("the rates %s are not declared yet: %s", ", ".join(names), error)

    async def acquire(self, bucket: str, *, most: float) -> Grant:
        try:
            grant = await self._rates.acquire(bucket, most=most)
        except BrokerError as error:
            log.warning("ctx.acquire(%r) waits: %s", bucket, error)
            return Grant(granted=False, wait=AWAY * random.uniform(1.0, 2.0))
        return await self._store.acquire(bucket, most=most) if grant is None else grant

    async def limits(self, *names: str) -> list[LimitRow]:
        rates = await self._rows(names)
        own = {row.name for row in rates}
        rows = [row for row in await self._store.limits(*names) if not (row.most == UNLIMITED and row.name in own)]
        return sorted([*rates, *rows], key=lambda row: (-row.waiting, -row.used, row.key))

    async def _rows(self, names: Sequence[str]) -> list[LimitRow]:
        try:
            return await self._rates.rows(names)
        except BrokerError as error:
            log.warning("the rates of %s cannot be read: %s", ", ".join(map(name_of, names)) or "all jobs", error)
            return []


def _release(job: Job, delay: float) -> Transition:
    """The job was never started: no attempt is burned."""
    return Transition(
        lease=job.lease,
        verb=Verb.RELEASE,
        delay=delay,
        attempt=job.attempt - 1,
        crashes=job.crashes,
        total=job.total,
        processed=job.processed,
        failed=job.failed,
        cost_cents=job.cost_cents,
        limited=bool(job.limits),
    )

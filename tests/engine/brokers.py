"""What stories of the delivery through a broker need: a broker of their own, and a worker that receives from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from redis.asyncio import Redis

import with_redis
from servers import url_of
from windlass import Windlass
from windlass.model.delivery import DeliveredClaim
from windlass.runtime.delivery.broker_discovery import BrokerDiscovery
from windlass.runtime.worker import Worker
from windlass.store.protocol import Claim
from windlass.transport import make_dispatcher
from windlass.transport.protocol import JobDispatcher

from .rig import EventRecorder, eventually, stores_of, working


@dataclass(kw_only=True)
class Broker:
    """A part of a broker that no other story uses."""

    name: str
    url: str

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[JobDispatcher]:
        """A dispatcher beside that of any worker."""
        dispatcher = make_dispatcher(self.url)
        await dispatcher.open()
        try:
            yield dispatcher
        finally:
            await dispatcher.close()

    async def is_drained(self, *queues: str) -> bool:
        async with self.opened() as dispatcher:
            depths = await dispatcher.depths(queues or ("default",))
            return all(depth.ready + (depth.unacknowledged or 0) == 0 for depth in depths)


@asynccontextmanager
async def private_part(name: str) -> AsyncIterator[Broker]:
    """Of RabbitMQ: names with a prefix of their own. Of Redis: a database of its own."""
    if name == "rabbitmq":
        prefix = f"t{uuid4().hex[:12]}"
        yield Broker(name=name, url=f"{url_of('amqp').rstrip('/')}/?prefix={prefix}")
        return
    url = f"{url_of('redis').removesuffix('/0')}/{uuid4().int % (with_redis.DATABASES - 1) + 1}"
    client = Redis.from_url(url)
    await client.flushdb()
    try:
        yield Broker(name=name, url=url)
    finally:
        await client.flushdb()
        await client.aclose()


@dataclass
class Claims:
    """What a worker claimed because a delivery named it."""

    asked: list[list[UUID]] = field(default_factory=list)
    answers: list[DeliveredClaim] = field(default_factory=list)

    @property
    def claimed(self) -> set[UUID]:
        return {job.id for answer in self.answers for job in answer.jobs}

    def refused(self, job: UUID) -> list[str]:
        return [str(answer.refused[job]) for answer in self.answers if job in answer.refused]


def record_claims(worker: Worker) -> Claims:
    """Before the worker's first delivery."""
    claims, store = Claims(), stores_of(worker)
    really = store.claim_delivered

    async def claim_delivered(claim: Claim, jobs: Sequence[UUID]) -> DeliveredClaim:
        claims.asked.append(list(jobs))
        answer: DeliveredClaim = await really(claim, jobs)
        claims.answers.append(answer)
        return answer

    store.claim_delivered = claim_delivered
    return claims


@asynccontextmanager
async def receiving(app: Windlass, **options: Any) -> AsyncIterator[tuple[Worker, EventRecorder, Claims]]:
    """A worker that receives deliveries, and has polled for what was there before."""
    async with working(app, **options) as (worker, events):
        claims = record_claims(worker)
        await until_it_receives(worker)
        yield worker, events, claims


async def until_it_receives(worker: Worker) -> None:
    async def relies() -> bool:
        discovery = worker.parts.discovery
        assert isinstance(discovery, BrokerDiscovery)
        return discovery.relies_on_deliveries

    await eventually(relies, bool)


def dispatcher_of(worker: Worker) -> Any:
    """The worker's own dispatcher, to be spied on or broken."""
    broker = worker.parts.broker
    assert broker is not None
    return broker.dispatcher

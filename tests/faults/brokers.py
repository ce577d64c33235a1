"""A broker that stories of faults kill and start again, and a carrier that repeats and shuffles what it holds."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

import with_rabbitmq
import with_redis
from windlass.model.job import new_id
from windlass.transport import make_dispatcher
from windlass.transport.protocol import JobDispatcher, Level, Message, QueueDepth

T = TypeVar("T")

QUEUE = "default"
HELD = 500  # deliveries that the carrier holds at most, and shuffles


class Server(Protocol):
    """What both servers can do."""

    @property
    def url(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


class BrokerUnderFire:
    """One server, and the parts of it that a story uses."""

    def __init__(self, kind: str, server: Server) -> None:
        self.kind = kind
        self.server = server

    def part(self, number: int) -> str:
        """The URL of a part that no other number shares: a prefix in RabbitMQ, a database in Redis."""
        if self.kind == "rabbitmq":
            return f"{self.server.url}/?prefix=part{number}"
        return urlunsplit(urlsplit(self.server.url)._replace(path=f"/{number}"))

    def settle(self) -> None:
        """Queues that were made a moment ago outlive a kill from now on."""
        if isinstance(self.server, with_rabbitmq.RabbitServer):
            self.server.settle()

    def kill(self) -> None:
        self.server.kill()

    def restart(self) -> None:
        self.server.kill()
        self.server.start()

    def restart_without_leaders(self) -> None:
        """As after a kill in the moment in which the queues of RabbitMQ were made: none has a leader."""
        assert isinstance(self.server, with_rabbitmq.RabbitServer)
        self.server.kill()
        self.server.forget_members()
        self.server.start()

    def depth(self, url: str) -> QueueDepth | None:
        async def read(dispatcher: JobDispatcher) -> QueueDepth | None:
            return next(iter(await dispatcher.depths([QUEUE])), None)

        return ask(url, read)

    def send_strangers(self, url: str, count: int) -> None:
        """Messages of jobs that never were: consumers acknowledge them, and no poll does."""

        async def send(dispatcher: JobDispatcher) -> None:
            messages = [Message(job=new_id(), queue=QUEUE, level=Level.NORMAL, payload=b"no envelope")] * count
            assert len(await dispatcher.dispatch(messages)) == count

        ask(url, send)


def ask(url: str, what: Callable[[JobDispatcher], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        dispatcher = make_dispatcher(url)
        await dispatcher.open()
        try:
            return await what(dispatcher)
        finally:
            await dispatcher.close()

    return asyncio.run(run())


@contextmanager
def private_broker(kind: str) -> Iterator[BrokerUnderFire]:
    """A server of the test's own. Redis keeps no file: what it held when it was killed is lost."""
    servers: dict[str, Callable[[], Any]] = {
        "rabbitmq": with_rabbitmq.private_rabbitmq,
        "redis": with_redis.private_redis,
    }
    with servers[kind]() as server:
        yield BrokerUnderFire(kind, server)


class Carrier(threading.Thread):
    """Takes each message from one part of a broker, and puts three of it into another, shuffled with its neighbours."""

    def __init__(self, source: str, target: str, chance: random.Random) -> None:
        super().__init__(name="carrier", daemon=True)
        self._source = source
        self._target = target
        self._random = chance
        self._stopped = threading.Event()
        self.carried = 0
        self.is_idle = False  # nothing came for a while
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._carry())
        except BaseException as problem:
            self.problem = problem

    def stop(self) -> None:
        self._stopped.set()
        self.join(30)
        assert self.problem is None, self.problem

    async def _carry(self) -> None:
        source, target = make_dispatcher(self._source), make_dispatcher(self._target)
        await source.open()
        await target.open()
        try:
            async with source.consume([QUEUE], prefetch=HELD) as consumer:
                while not self._stopped.is_set():
                    try:
                        async with asyncio.timeout(0.1):
                            taken = await consumer.receive(HELD)
                    except TimeoutError:
                        self.is_idle = True
                        continue
                    self.is_idle = False
                    messages = [
                        Message(job=new_id(), queue=each.queue, level=each.level, payload=each.payload)
                        for each in taken
                    ] * 3
                    self._random.shuffle(messages)
                    assert len(await target.dispatch(messages)) == len(messages)
                    await consumer.acknowledge(taken)
                    self.carried += len(messages)
        finally:
            await source.close()
            await target.close()

"""One connection to RabbitMQ: made from the hosts of a URL, watched, and made again when it breaks.

The loop is Windlass's own, because consumers and declarations follow it: after a break each part sets up again what it
needs, and no library replays what it remembers.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar
from urllib.parse import quote

import aiormq
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import ChannelLockedResource, ChannelNotFoundEntity, ChannelPreconditionFailed

from windlass.address import Host
from windlass.broker_address import BrokerAddress
from windlass.errors import BrokerError, BrokerRefused, BrokerUnavailable
from windlass.transport.rabbitmq.problems import FAILURES, describe, is_cancelled, translate
from windlass.transport.tls import explain_handshake, make_context

T = TypeVar("T")

HEARTBEAT = 10  # seconds; a server that is silent for three of them is given up
CONNECT_LIMIT = 10.0  # seconds for one host
CLOSE_LIMIT = 3.0  # seconds for a goodbye
PAUSES = (0.2, 10.0)  # seconds between two attempts: the first, and the longest
NOTED_AGAIN = 600.0  # seconds after which the same problem is logged once more

logger = logging.getLogger(__name__)
# Where a program sets up no logging, as a command, Python would print the library's lines beside Windlass's own error.
logging.getLogger("aiormq").addHandler(logging.NullHandler())


class RabbitLink:
    """A connection that a task keeps open. While there is none, `connection` raises at once."""

    def __init__(self, address: BrokerAddress, purpose: str, answer_limit: float) -> None:
        self.address = address
        self._purpose = purpose
        self._answer_limit = answer_limit
        self._connection: AbstractConnection | None = None
        self._problem: BrokerError = BrokerUnavailable(f"{address.shown} is not open yet")
        self._noted_at = -math.inf  # on the loop's clock
        self._connected = asyncio.Event()
        self._lost = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._goodbyes: set[asyncio.Task[None]] = set()

    @property
    def is_up(self) -> bool:
        return self._connection is not None and not self._connection.is_closed

    @property
    def connection(self) -> AbstractConnection:
        if self._connection is None or self._connection.is_closed:
            raise type(self._problem)(str(self._problem))
        return self._connection

    async def open(self) -> None:
        """Connect; raises what went wrong, and goes on trying until `close`."""
        if self._keeper is not None:
            return
        try:
            self._connection = await self._connect()
        except BrokerError as problem:
            self._problem = problem
            raise
        finally:
            self._keeper = asyncio.create_task(self._keep(), name=f"windlass-rabbitmq-{self._purpose}")

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        if self._connection is not None:
            self.drop(self._connection, BrokerUnavailable(f"{self.address.shown} is closed"))
        if self._goodbyes:
            await asyncio.wait(self._goodbyes)

    async def wait(self) -> AbstractConnection:
        """The connection, as soon as there is one."""
        while not self.is_up:
            self._connected.clear()
            await self._connected.wait()
        return self.connection

    def drop(self, connection: AbstractConnection, problem: BrokerError) -> None:
        """Give up a connection that does not answer; the keeper makes another one."""
        if self._connection is connection:
            self._connection, self._problem = None, problem
            self._lost.set()
            self.close_later(connection)

    def close_later(self, closing: AbstractConnection | AbstractChannel) -> None:
        goodbye = asyncio.create_task(_quietly(closing.close()))
        self._goodbyes.add(goodbye)
        goodbye.add_done_callback(self._goodbyes.discard)

    @asynccontextmanager
    async def channel(self, *, confirms: bool = False) -> AsyncIterator[AbstractChannel]:
        """A channel for a few calls: a call that RabbitMQ refuses closes its channel, and so disturbs no other."""
        channel = await self.open_channel(confirms=confirms)
        try:
            yield channel
        finally:
            await _quietly(channel.close())

    async def open_channel(self, *, confirms: bool = False) -> AbstractChannel:
        return await self.answer(self.connection.channel(publisher_confirms=confirms, on_return_raises=True))

    async def answer(self, call: Awaitable[T], *, gives_up: bool = True) -> T:
        """What the server answers. With `gives_up`, a connection without an answer is given up.

        What the server refused because of the state of a queue is raised as it is: the caller knows the queue.
        """
        connection = self._connection
        try:
            async with asyncio.timeout(self._answer_limit):
                return await call
        except (ChannelLockedResource, ChannelNotFoundEntity, ChannelPreconditionFailed):
            raise
        except FAILURES as problem:
            if is_cancelled(problem):
                raise
            error = translate(problem, self.address)
            if isinstance(problem, TimeoutError) and gives_up and connection is not None:
                self._note(error)  # an alarm lets the next connection in, and answers nothing there either
                self.drop(connection, error)
            raise error from None

    async def _keep(self) -> None:
        pause = PAUSES[0]
        while True:
            if self._connection is None:
                try:
                    self._connection = await self._connect()
                except BrokerError as problem:
                    self._note(problem)
                    # Jitter: a hundred workers do not come back in the same moment.
                    await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                    pause = min(pause * 2, PAUSES[1])
                    continue
                logger.info("connected to %s", self.address.shown)
            pause = PAUSES[0]
            await self._watch(self._connection)

    async def _watch(self, connection: AbstractConnection) -> None:
        """Wait until the connection is lost or dropped."""
        lost = self._lost = asyncio.Event()
        ends = connection.closing
        ends.add_done_callback(lambda _: lost.set())
        self._connected.set()
        await lost.wait()
        if self._connection is connection:
            reason = ends.exception() if ends.done() and not ends.cancelled() else None
            problem = BrokerUnavailable(f"the connection to {self.address.shown} broke: {describe(reason)}")
            self._note(problem)
            self.drop(connection, problem)

    def _note(self, problem: BrokerError) -> None:
        now = asyncio.get_running_loop().time()
        if str(problem) != str(self._problem) or now - self._noted_at > NOTED_AGAIN:
            self._noted_at = now
            logger.warning("%s; workers poll the store, and Windlass connects again by itself", problem)
        self._problem = problem

    async def _connect(self) -> AbstractConnection:
        """The first host that answers.

        A host that refuses the login ends the search: it is the same for all. What TLS refuses is a fault of one host.
        """
        problems: list[str] = []
        refused: list[BrokerError] = []
        for host in self.address.hosts:
            connection = aiormq.Connection(self._url(host), context=make_context(self.address))
            try:
                async with asyncio.timeout(CONNECT_LIMIT):
                    await connection.connect()
                return connection
            except FAILURES as problem:
                if is_cancelled(problem):
                    raise
                error = translate(problem, self.address)
                if isinstance(error, BrokerRefused):
                    if explain_handshake(problem, self.address) is None:
                        raise error from None
                    refused.append(error)
                problems.append(f"{host}: {describe(problem)}")
        if len(refused) == len(self.address.hosts):
            raise refused[0]
        raise BrokerUnavailable(
            f"RabbitMQ at {self.address.shown} cannot be reached ({'; '.join(problems)}); ask the server: "
            "rabbitmq-diagnostics check_running"
        )

    def _url(self, host: Host) -> str:
        login = f"{quote(self.address.user or 'guest', safe='')}:{quote(self.address.password or 'guest', safe='')}"
        vhost = quote(self.address.path, safe="")
        return f"{self.address.scheme}://{login}@{host}/{vhost}?heartbeat={HEARTBEAT}&name=windlass-{self._purpose}"


async def _quietly(closing: Awaitable[None]) -> None:
    """Close something that may be broken: for a moment, and in a task of its own, because the library cancels too."""

    async def close() -> None:
        try:
            async with asyncio.timeout(CLOSE_LIMIT):
                await closing
        except FAILURES:
            pass

    await asyncio.wait([asyncio.create_task(close())])

"""The way to one Redis: which host answers, its errors in Windlass's words, and a connection that mends itself.

A read that blocks has a connection of its own, because the client takes one from its pool for each call: an
acknowledgement never waits behind it. All connections are dropped when one breaks. After a failover or a restart they
are stale together.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    NoPermissionError,
    ReadOnlyError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from windlass.broker_address import BrokerAddress
from windlass.errors import BrokerError, BrokerRefused, BrokerUnavailable
from windlass.transport.tls import explain_handshake, make_context

log = logging.getLogger("windlass")
T = TypeVar("T")

CONNECT_LIMIT = 3.0  # seconds for one host
ANSWER_LIMIT = 10.0  # seconds without an answer: the connection is silent, as after a firewall forgot it
IDLE_CHECK = 15.0  # seconds: a connection that was idle for longer is tried with a PING before its next command
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between two tries to connect, doubled each time, with jitter
CREDENTIALS = (AuthenticationError, AuthenticationWrongNumberOfArgsError, AuthorizationError, NoPermissionError)
SILENT = (RedisConnectionError, RedisTimeoutError, OSError, TimeoutError)
AWAY = ("LOADING", "MASTERDOWN", "READONLY", "NOREPLICAS")  # codes of a server in transition
FULL = ("OOM", "MISCONF")  # the server takes no writes: its memory or its disk is full
GROUP_GONE = ("NOGROUP", "UNBLOCKED")  # FLUSHALL, or a restart without a file; UNBLOCKED answers a read that waits


class RedisLink:
    """Connections to the primary. `run` is the one way to send commands.

    Its callers see the client as `Any`: the library's annotations differ from version to version, and name answers of
    both of its protocols.
    """

    def __init__(self, address: BrokerAddress) -> None:
        self._address = address
        self.shown = address.shown
        self._client: Redis | None = None
        self._up = asyncio.Event()
        self._connecting = asyncio.Lock()
        self._tries = 0
        self._problem: BrokerError | None = None
        self._mender: asyncio.Task[None] | None = None
        self._closed = False
        self.generation = 0  # grows with each new connection: what was declared before may be gone

    @property
    def is_up(self) -> bool:
        return self._client is not None

    async def open(self) -> None:
        self._closed = False
        await self._connected()

    async def close(self) -> None:
        self._closed = True
        if self._mender is not None:
            self._mender.cancel()
            await asyncio.gather(self._mender, return_exceptions=True)
        await self._drop(self._client)

    async def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run commands on the primary. Raises BrokerUnavailable, BrokerRefused, or ResponseError: the group is gone."""
        client = await self._connected()
        cancels = _cancels()
        try:
            answer = await work(client)
            if _cancels() > cancels:  # the library swallowed a cancel: its caller would wait for ever
                raise asyncio.CancelledError
            return answer
        except (RedisError, OSError, TimeoutError) as error:
            if short(error).startswith(GROUP_GONE):
                raise
            problem = self.explain(error)
            if is_away(error):
                await self._drop(client)
                self._mend(problem)
            raise problem from None  # the library's error may show the command with its payload

    async def wait_until_up(self) -> None:
        """Return when there is a connection; a task of this link makes it."""
        if self._client is None and not self._closed:
            self._mend(self._problem)
        await self._up.wait()

    async def _connected(self) -> Redis:
        if self._client is not None:
            return self._client
        if self._closed:
            raise BrokerUnavailable(f"the connection to {self.shown} is closed")
        seen = self._tries
        async with self._connecting:
            if self._tries != seen:  # another caller tried meanwhile: each would wait for the time limit once more
                return self._last_answer()
            self._tries += 1
            try:
                self._client = await self._connect()
            except BrokerError as problem:
                self._problem = problem
                raise
            self._problem = None
            self.generation += 1
            self._up.set()
            return self._client

    def _last_answer(self) -> Redis:
        if self._client is not None:
            return self._client
        problem = self._problem or BrokerUnavailable(f"the connection to {self.shown} broke")
        raise type(problem)(str(problem))

    async def _connect(self) -> Redis:
        """The first host that answers as a primary."""
        problems: list[BrokerError] = []
        make_context(self._address)  # the library makes its own, and hides which file was wrong
        for host, port in await self._places():
            client = self._make(host, port)
            try:
                async with asyncio.timeout(2 * CONNECT_LIMIT):
                    role = await client.execute_command("ROLE")  # type: ignore[no-untyped-call]
                if bytes(role[0]) == b"master":
                    return client
                problems.append(BrokerUnavailable(f"Redis at {host}:{port} is a replica and takes no writes"))
            except (RedisError, OSError, TimeoutError) as error:
                problems.append(self.explain(error))
            except BaseException:
                await client.aclose()
                raise
            await client.aclose()
        raise next((problem for problem in problems if isinstance(problem, BrokerRefused)), problems[-1])

    async def _places(self) -> list[tuple[str, int]]:
        hosts = [(host.name, host.port or 6379) for host in self._address.hosts]
        if self._address.kind != "sentinel":
            return hosts
        # The login of the URL is the primary's; sentinels have none of their own by default.
        sentinels: Any = Sentinel(hosts, sentinel_kwargs={**self._options(), "db": 0})  # type: ignore[no-untyped-call]
        try:
            async with asyncio.timeout(CONNECT_LIMIT * len(hosts)):
                return [await sentinels.discover_master(self._address.primary)]
        except (RedisError, OSError, TimeoutError) as error:
            raise BrokerUnavailable(
                f"no sentinel of {self.shown} names a primary {self._address.primary!r}: {short(error)}; ask one: "
                "redis-cli -p 26379 sentinel masters"
            ) from error
        finally:
            for sentinel in sentinels.sentinels:
                await sentinel.aclose()

    def _make(self, host: str, port: int) -> Redis:
        tls: dict[str, Any] = {}
        if self._address.has_tls:
            given = self._address.options
            names = {"ssl_ca_certs": "cafile", "ssl_certfile": "certfile", "ssl_keyfile": "keyfile"}
            tls = {"ssl": True, **{name: given[option] for name, option in names.items() if option in given}}
        login: dict[str, Any] = {"username": self._address.user, "password": self._address.password}
        return Redis(host=host, port=port, db=self._address.database, **login, **tls, **self._options())

    @staticmethod
    def _options() -> dict[str, Any]:
        return {
            "socket_timeout": ANSWER_LIMIT,
            "socket_connect_timeout": CONNECT_LIMIT,
            "socket_keepalive": True,
            "health_check_interval": IDLE_CHECK,
            # The library would send a command twice when its answer is lost, and XADD twice is two deliveries.
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }

    async def _drop(self, client: Redis | None) -> None:
        """Close this client, unless another call has done that already."""
        if client is None or client is not self._client:
            return
        self._client = None
        self._up.clear()
        try:
            await client.aclose()
        except (RedisError, OSError):
            pass

    def _mend(self, problem: BrokerError | None) -> None:
        if self._closed or (self._mender is not None and not self._mender.done()):
            return
        self._mender = asyncio.create_task(self._reconnect(problem), name="windlass-redis-reconnect")

    async def _reconnect(self, problem: BrokerError | None) -> None:
        pause = FIRST_PAUSE
        told = None
        while not self._closed:
            if problem is not None and type(problem) is not told:
                log.warning("%s; connecting again", problem)
                told = type(problem)
            # With jitter: a fleet that lost its Redis together must not return in one moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            try:
                await self._connected()
            except BrokerError as error:
                problem, pause = error, min(LONGEST_PAUSE, pause * 2)
            else:
                log.info("Redis at %s answers again", self.shown)
                return

    def explain(self, error: Exception) -> BrokerError:
        """The error in Windlass's words, without the password."""
        text = short(error)
        if isinstance(error, CREDENTIALS) or text.startswith(("NOAUTH", "WRONGPASS", "NOPERM")):
            advice = "check user and password in its URL, and what they allow: redis-cli ACL LIST"
            return BrokerRefused(f"Redis at {self.shown} refuses the login: {text}; {advice}")
        if self._address.has_tls and (refused := explain_handshake(error, self._address)):
            return refused
        if is_away(error):
            return BrokerUnavailable(f"Redis at {self.shown} cannot be used now: {text}")
        if text.startswith(FULL) or "maxmemory" in text:  # the library cuts some codes off
            advice = "see: redis-cli INFO memory, redis-cli INFO persistence"
            return BrokerUnavailable(f"Redis at {self.shown} takes no writes: {text}; {advice}")
        return BrokerRefused(f"Redis at {self.shown} refuses: {text}")


def _cancels() -> int:
    """How often the running task was cancelled."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def is_away(error: Exception) -> bool:
    """Whether the connection is of no more use: it broke, or leads to a server that is no primary now."""
    if isinstance(error, CREDENTIALS):  # some of them are ConnectionErrors
        return False
    return isinstance(error, (*SILENT, ReadOnlyError)) or short(error).startswith(AWAY)


def short(error: Exception) -> str:
    """The text of an error, without the command that the library puts before it."""
    text = " ".join(str(error).rpartition("caused error: ")[2].split()).rstrip(".") or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}…"

"""Redis Streams as a transport: three streams per Windlass queue, one consumer group, one stream of dead letters.

What Redis can lose, with an append-only file or without: deliveries, and so time. The fallback poll finds the rows.
`transport/redis_consumer.py` receives; this module publishes, lists and checks.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from windlass.broker_address import BrokerAddress
from windlass.transport.protocol import LEVELS, DeadLetter, Finding, JobDispatcher, Message, QueueDepth
from windlass.transport.redis_consumer import DEAD, GROUP, RedisConsumer, dead_fields, payload_of, stream_of
from windlass.transport.redis_link import RedisLink

RECLAIM_AFTER = 60.0  # seconds that a delivery may be held; see redis_consumer.py
LIVE = 60.0  # seconds: a consumer that asked within this time counts; an idle one asks every 36 s at least
STREAM_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
OLDEST = (7, 0)  # the version that Windlass is tested with
NEEDED = ("XADD", "XREADGROUP", "XACK", "XDEL", "XPENDING", "XCLAIM", "XAUTOCLAIM", "XTRIM", "XINFO", "EVALSHA")


class RedisStreams(JobDispatcher):
    """Carries deliveries through Redis Streams."""

    def __init__(self, address: BrokerAddress, *, reclaim_after: float = RECLAIM_AFTER) -> None:
        self._link = RedisLink(address)
        self.shown = address.shown
        self._reclaim_after = reclaim_after
        self._declared: set[str] = set()
        self._generation = 0  # of the connection on which `_declared` is true

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    @property
    def is_up(self) -> bool:
        return self._link.is_up

    async def declare(self, queues: Collection[str]) -> None:
        """Make the streams and their group. The group begins at 0: what was published before it exists is delivered."""
        keys = [stream_of(queue, level) for queue in queues for level in LEVELS]

        def add(pipeline: Any) -> None:
            for key in keys:
                pipeline.xgroup_create(key, GROUP, id="0", mkstream=True)

        for answer in await self._send(add):
            if isinstance(answer, Exception) and not str(answer).startswith("BUSYGROUP"):
                raise self._link.explain(answer)
        self._declared.update(queues)

    async def dispatch(self, messages: Sequence[Message]) -> frozenset[int]:
        """One pipeline without MULTI: its replies are the confirms, one by one."""
        await self._declare_missing({message.queue for message in messages})

        def add(pipeline: Any) -> None:
            for message in messages:
                pipeline.xadd(stream_of(message.queue, message.level), {"payload": message.payload})

        return self._confirmed(await self._send(add))

    @asynccontextmanager
    async def consume(self, queues: Collection[str], *, prefetch: int) -> AsyncIterator[RedisConsumer]:
        await self.declare(queues)
        consumer = RedisConsumer(self._link, self.declare, queues, prefetch=prefetch, reclaim_after=self._reclaim_after)
        try:
            yield consumer
        finally:
            await consumer.close()

    async def bury(self, letters: Sequence[tuple[Message, str]]) -> frozenset[int]:
        def add(pipeline: Any) -> None:
            for message, reason in letters:
                pipeline.xadd(DEAD, dead_fields(message.payload, reason, message.queue, message.job))

        return self._confirmed(await self._send(add))

    async def dead_letters(self, most: int) -> list[DeadLetter]:
        async def read(client: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
            return list(await client.xrange(DEAD, count=most)) if most > 0 else []

        return [_dead_letter(id, fields) for id, fields in await self._link.run(read)]

    async def remove_dead_letters(self, ids: Collection[str]) -> int:
        async def remove(client: Any) -> int:
            return int(await client.xdel(DEAD, *known)) if known else 0

        known = [id for id in ids if STREAM_ID.fullmatch(id)]  # Redis refuses the whole call where one is no id
        return await self._link.run(remove)

    async def count_dead_letters(self) -> int:
        async def count(client: Any) -> int:
            return int(await client.xlen(DEAD))

        return await self._link.run(count)

    async def depths(self, queues: Collection[str]) -> list[QueueDepth]:
        keys = {queue: [stream_of(queue, level) for level in LEVELS] for queue in queues}

        def add(pipeline: Any) -> None:
            for key in (key for keys_of_one in keys.values() for key in keys_of_one):
                pipeline.xlen(key)
                pipeline.xinfo_groups(key)
                pipeline.xinfo_consumers(key, GROUP)

        answers = await self._send(add)
        depths = []
        for place, queue in enumerate(keys):
            of_queue = answers[place * 3 * len(LEVELS) : (place + 1) * 3 * len(LEVELS)]
            if any(not isinstance(groups, Exception) for groups in of_queue[1::3]):  # "no such key" where it is missing
                depths.append(_depth(queue, of_queue[0::3], of_queue[1::3], of_queue[2::3]))
        return depths

    async def check(self, queues: Collection[str]) -> list[Finding]:
        async def read(client: Any) -> tuple[dict[str, Any], list[Any]]:
            information = await client.info("all")
            known = await client.execute_command("COMMAND", "INFO", *NEEDED)
            return information, list(known.values() if isinstance(known, dict) else known)

        information, known = await self._link.run(read)
        missing = [name for name, found in zip(NEEDED, known, strict=False) if found is None]
        declared = set(queues) - await self._without_group(queues)
        return [
            Finding(ok=True, subject="connection", text=f"Redis at {self.shown} answers"),
            _version_finding(str(information["redis_version"]), missing),
            _durability_finding(bool(information.get("aof_enabled"))),
            _eviction_finding(str(information.get("maxmemory_policy", "")), int(information.get("maxmemory", 0))),
            *(_queue_finding(queue, queue in declared) for queue in queues),
        ]

    async def trim(self, queues: Collection[str], older: float) -> int:
        """Whole nodes of a stream, about a hundred entries each: exact trimming would rewrite a node per call.

        An entry that is so old has been found by the fallback poll long ago. The ids hold the server's own clock.
        """

        async def cut(client: Any) -> int:
            seconds, micro = await client.time()
            least = f"{max(0, int((seconds + micro / 1e6 - older) * 1000))}-0"
            keys = [stream_of(queue, level) for queue in queues for level in LEVELS]
            return sum([int(await client.xtrim(key, minid=least, approximate=True)) for key in keys])

        return await self._link.run(cut)

    # Inside

    async def _send(self, add: Callable[[Any], None]) -> list[Any]:
        """Send commands in one round trip; the answers, errors of single commands among them."""

        async def send(client: Any) -> list[Any]:
            async with client.pipeline(transaction=False) as pipeline:
                add(pipeline)
                return list(await pipeline.execute(raise_on_error=False))

        return await self._link.run(send)

    async def _declare_missing(self, queues: Iterable[str]) -> None:
        if self._generation != self._link.generation:  # the server may have started empty
            self._declared.clear()
            self._generation = self._link.generation
        if missing := set(queues) - self._declared:
            await self.declare(missing)

    def _confirmed(self, answers: Sequence[Any]) -> frozenset[int]:
        confirmed = frozenset(index for index, answer in enumerate(answers) if not isinstance(answer, Exception))
        if answers and not confirmed:
            raise self._link.explain(answers[0])
        return confirmed

    async def _without_group(self, queues: Collection[str]) -> set[str]:
        keys = {stream_of(queue, level): queue for queue in queues for level in LEVELS}

        def add(pipeline: Any) -> None:
            for key in keys:
                pipeline.xinfo_groups(key)

        answers = zip(keys.values(), await self._send(add), strict=True)
        return {queue for queue, groups in answers if isinstance(groups, Exception) or _group(groups) is None}


def _group(groups: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((group for group in groups if group["name"] == GROUP.encode()), None)


def _depth(queue: str, lengths: Sequence[Any], groups: Sequence[Any], consumers: Sequence[Any]) -> QueueDepth:
    own = [group for answer in groups if not isinstance(answer, Exception) and (group := _group(answer))]
    held = sum(int(group["pending"]) for group in own)
    kept = sum(int(length) for length in lengths if not isinstance(length, Exception))
    live = {
        consumer["name"]
        for answer in consumers
        if not isinstance(answer, Exception)
        for consumer in answer
        if consumer["idle"] < LIVE * 1000
    }
    return QueueDepth(queue=queue, ready=max(0, kept - held), unacknowledged=held, consumers=len(live))


def _dead_letter(id: bytes, fields: dict[bytes, bytes]) -> DeadLetter:
    texts = {name: fields[name].decode(errors="replace") for name in (b"queue", b"reason") if name in fields}
    try:
        job = UUID(fields.get(b"job", b"").decode(errors="replace"))
    except ValueError:
        job = None
    milliseconds = int(id.partition(b"-")[0])
    return DeadLetter(
        id=id.decode(),
        payload=payload_of(fields),
        reason=texts.get(b"reason", "another program wrote this entry"),
        queue=texts.get(b"queue") or None,
        at=_time(fields.get(b"at", b"")) or datetime.fromtimestamp(milliseconds / 1000, UTC),
        job=job,
    )


def _time(text: bytes) -> datetime | None:
    try:
        at = datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    return at if at.tzinfo else None


def _version_finding(version: str, missing: Sequence[str]) -> Finding:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers >= OLDEST and not missing:
        return Finding(ok=True, subject="version", text=f"Redis {version}")
    lacks = f" and lacks {', '.join(missing)}" if missing else ""
    text = f"Redis {version}{lacks}; the oldest version that Windlass is tested with is 7.0"
    return Finding(ok=False, subject="version", text=text, advice="install Redis 7.0 or newer")


def _durability_finding(has_aof: bool) -> Finding:
    if has_aof:
        return Finding(ok=True, subject="append-only file", text="deliveries survive a restart of Redis")
    text = (
        "the append-only file is off: when Redis dies, deliveries are lost. That costs time, never a job: workers find "
        "the jobs in the store by their fallback poll. Buckets of rates that are kept in Redis begin full"
    )
    advice = "redis-cli CONFIG SET appendonly yes && redis-cli CONFIG REWRITE"
    return Finding(ok=False, subject="append-only file", text=text, advice=advice)


def _eviction_finding(policy: str, most: int) -> Finding:
    if not policy.startswith("allkeys") or most == 0:
        return Finding(ok=True, subject="memory", text="Redis evicts no stream")
    text = (
        f"maxmemory-policy is {policy}: when memory runs out, Redis drops whole streams, and their deliveries are late"
    )
    return Finding(ok=False, subject="memory", text=text, advice="redis-cli CONFIG SET maxmemory-policy noeviction")


def _queue_finding(queue: str, is_declared: bool) -> Finding:
    if is_declared:
        return Finding(ok=True, subject=f"queue {queue}", text="its streams and their group are there")
    text = "its streams have no group yet; workers and the relay make it"
    return Finding(ok=False, subject=f"queue {queue}", text=text, advice="windlass broker setup")

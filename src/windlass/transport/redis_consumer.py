"""A consumer of Redis Streams: it reads the higher levels first, acknowledges, and takes over what dead consumers left.

Redis does not notice that a consumer died: its entries stay pending under its name. A delivery is pending for moments
only, because a worker acknowledges as soon as its claim committed or was refused. So an entry that was pending for a
minute belongs to a consumer that died, and any other one takes it. Where a consumer was only slow the delivery is
repeated, and the store's claim refuses the second one.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from redis.exceptions import ResponseError

from windlass.errors import BrokerError
from windlass.transport.envelope import job_of
from windlass.transport.protocol import LEVELS, Consumer, Delivery, Level
from windlass.transport.redis_link import RedisLink

GROUP = "windlass"
DEAD = "windlass:dead"
BLOCK = 2.0  # seconds of one read that waits; a new queue, and a lost group, are seen after that at the latest
SETTLE = 0.5  # seconds after which the server knows that the connection of a cancelled read is gone
MOST_DELIVERIES = 3  # an entry that outlived so many consumers is buried: it may be what killed them
PAGE = 100  # entries that are taken over at once
BEHIND_ALL = "18446744073709551615-0"  # an id; the very last one would be read as `>`
FORGOTTEN = 3600.0  # seconds without a sign of life after which a consumer without entries is removed

# The streams in their order, as many entries as there is room for, in one round trip. XREADGROUP over several streams
# takes COUNT entries from each of them.
READ = """
local left, found = tonumber(ARGV[3]), {}
for _, key in ipairs(KEYS) do
  if left <= 0 then break end
  local answer = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', left, 'STREAMS', key, '>')
  if answer then
    left = left - #answer[1][2]
    found[#found + 1] = answer[1]
  end
end
return found
"""

Tag = tuple[str, bytes]  # key and id of an entry
Declare = Callable[[Collection[str]], Awaitable[None]]


def stream_of(queue: str, level: Level) -> str:
    """The key of a stream. The braces keep the three streams of one queue in one slot of a cluster."""
    return f"windlass:{{{queue}}}:{level}"


def dead_fields(payload: bytes, reason: str, queue: str, job: UUID | None) -> dict[Any, Any]:
    """The fields of a dead letter."""
    fields = {"payload": payload, "reason": reason, "queue": queue, "at": datetime.now(UTC).isoformat()}
    return fields if job is None else {**fields, "job": str(job)}


def payload_of(fields: dict[bytes, bytes]) -> bytes:
    """The message. An entry of another program may have other fields: then all of them, so that none is lost."""
    if b"payload" in fields:
        return fields[b"payload"]
    texts = {name.decode(errors="replace"): value.decode(errors="backslashreplace") for name, value in fields.items()}
    return json.dumps(texts, ensure_ascii=False).encode(errors="backslashreplace")


class RedisConsumer(Consumer):
    """One open consumer, under a name of its own."""

    def __init__(
        self, link: RedisLink, declare: Declare, queues: Collection[str], *, prefetch: int, reclaim_after: float
    ) -> None:
        self._link = link
        self._declare = declare
        self._queues = list(dict.fromkeys(queues))
        self._prefetch = prefetch
        self._reclaim_after = reclaim_after
        self._name = uuid4().hex
        self._held: dict[Tag, Delivery] = {}
        self._ahead: list[Delivery] = []  # received while it waited, and not returned yet
        self._freed = asyncio.Event()
        self._reclaim_at = 0.0  # on the loop's clock: at once
        self._doubtful_until = 0.0  # until then entries may have been sent here and not received

    async def receive(self, most: int) -> list[Delivery]:
        while True:
            room = await self._room(most)
            await self._link.wait_until_up()
            try:
                if found := await self._recover(room) or await self._reclaim(room) or await self._read(room):
                    return found
                await self._wait_for_any()
            except ResponseError:  # the group is gone
                await self._declare(self._queues)
            except BaseException:  # cancelled, or the connection broke: entries may have been sent and not received
                self._doubtful_until = _now() + BLOCK + SETTLE
                raise

    async def add(self, queues: Collection[str]) -> None:
        await self._declare(queues)
        self._queues = list(dict.fromkeys([*self._queues, *queues]))

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """XACK and XDEL in one MULTI: an entry that is acknowledged and not deleted would stay for ever.

        When the connection breaks here the entries stay pending, and are delivered again after a minute.
        """
        await self._end(deliveries)

    async def bury(self, deliveries: Sequence[tuple[Delivery, str]]) -> None:
        letters = [
            (DEAD, dead_fields(delivery.payload, reason, delivery.queue, job_of(delivery.payload)))
            for delivery, reason in deliveries
        ]
        await self._end([delivery for delivery, _ in deliveries], letters)

    async def give_back(self, deliveries: Sequence[Delivery]) -> None:
        again = [(_tag(delivery)[0], {"payload": delivery.payload}) for delivery in deliveries]
        await self._end(deliveries, again)

    async def close(self) -> None:
        """Hand back what is pending, seen or not, and remove this consumer from the groups."""
        if not self._link.is_up:
            return  # its entries are taken over after a minute
        try:
            for queue in self._queues:
                for level in LEVELS:
                    await self._leave(queue, level)
        except (BrokerError, ResponseError):  # the same; without its group there is nothing to hand back
            pass

    # Inside

    async def _room(self, most: int) -> int:
        """Wait until fewer than `prefetch` deliveries are held."""
        while (room := self._prefetch - len(self._held)) <= 0:
            self._freed.clear()
            await self._freed.wait()
        return max(1, min(room, most))

    async def _read(self, room: int) -> list[Delivery]:
        if self._ahead:
            found, self._ahead = self._ahead[:room], self._ahead[room:]
            return self._hold(found)
        random.shuffle(self._queues)  # queues of one level take turns
        keys = [stream_of(queue, level) for level in LEVELS for queue in self._queues]

        async def read(client: Any) -> Any:
            return await client.register_script(READ)(keys=keys, args=[GROUP, self._name, room])

        return self._hold(
            _delivery(key.decode(), id, dict(zip(fields[::2], fields[1::2], strict=True)))
            for key, entries in await self._link.run(read)
            for id, fields in entries
        )

    async def _recover(self, room: int) -> list[Delivery]:
        """Entries that are pending for this consumer and are unknown here: the answer to a read was lost.

        A read that was cancelled may still take an entry, until the server notices that its connection is closed. So
        the question is asked for a while, and not once.
        """
        if _now() > self._doubtful_until:
            return []
        known = {*self._held, *(_tag(delivery) for delivery in self._ahead)}
        lost = [
            delivery
            for level in LEVELS
            for queue in self._queues
            for delivery in await self._pending(stream_of(queue, level), PAGE + len(known))
            if _tag(delivery) not in known
        ]
        return self._hold(lost[:room])

    async def _pending(self, key: str, most: int) -> list[Delivery]:
        """What is pending for this consumer."""

        async def read(client: Any) -> list[Delivery]:
            streams: dict[Any, Any] = {key: "0"}  # 0: what is pending here, instead of what is new
            answer = await client.xreadgroup(GROUP, self._name, streams, count=most)
            # An entry without fields was deleted while it was pending.
            return [_delivery(key, id, fields) for _, entries in answer or () for id, fields in entries if fields]

        return await self._link.run(read)

    async def _wait_for_any(self) -> None:
        """Wait until a stream has an entry. If several got one since the last look, each gives one: more than asked for
        are then kept for the next call."""
        streams: dict[Any, Any] = {stream_of(queue, level): ">" for level in LEVELS for queue in self._queues}

        async def wait(client: Any) -> Any:
            return await client.xreadgroup(GROUP, self._name, streams, count=1, block=int(span * 1000))

        span = BLOCK if _now() > self._doubtful_until else BLOCK / 20

        answer = await self._link.run(wait)
        found = [_delivery(key.decode(), id, fields) for key, entries in answer or () for id, fields in entries]
        self._ahead += sorted(found, key=lambda delivery: LEVELS.index(delivery.level))

    def _hold(self, found: Iterable[Delivery]) -> list[Delivery]:
        deliveries = list(found)
        self._held |= {_tag(delivery): delivery for delivery in deliveries}
        return deliveries

    async def _end(self, deliveries: Sequence[Delivery], added: Iterable[tuple[str, dict[Any, Any]]] = ()) -> None:
        """Add entries, and forget those of the deliveries, in one MULTI."""
        if not deliveries:
            return
        ids: dict[str, list[bytes]] = {}
        for delivery in deliveries:
            key, id = _tag(delivery)
            ids.setdefault(key, []).append(id)
            self._held.pop((key, id), None)
        self._freed.set()

        async def end(client: Any) -> None:
            async with client.pipeline(transaction=True) as pipeline:
                for key, fields in added:
                    pipeline.xadd(key, fields)
                for key, own in ids.items():
                    pipeline.xack(key, GROUP, *own)
                    pipeline.xdel(key, *own)
                await pipeline.execute()

        await self._link.run(end)

    async def _reclaim(self, room: int) -> list[Delivery]:
        """Take over entries of consumers that died; now and then, each consumer at another moment."""
        now = _now()
        if now < self._reclaim_at:
            return []
        self._reclaim_at = now + self._reclaim_after * random.uniform(0.3, 0.6)
        found: list[Delivery] = []
        for level in LEVELS:
            for queue in self._queues:
                found += await self._take_over(queue, level, min(PAGE, room - len(found)))
        poison = [delivery for delivery in found if delivery.count > MOST_DELIVERIES]
        reason = f"delivered more than {MOST_DELIVERIES} times, and no worker lived to acknowledge it"
        await self.bury([(delivery, reason) for delivery in poison])
        return self._hold(delivery for delivery in found if delivery.count <= MOST_DELIVERIES)

    async def _take_over(self, queue: str, level: Level, most: int) -> list[Delivery]:
        key, idle = stream_of(queue, level), int(self._reclaim_after * 1000)

        async def take(client: Any) -> list[Delivery]:
            # Redis 7.0 knows a consumer from its first entry on, and counts the time since the last. A look at what is
            # pending here is a sign of life as well: `depths` counts by it. It begins behind every id, because each
            # entry that it returned would count as delivered once more, and as never idle.
            await client.xreadgroup(GROUP, self._name, {key: BEHIND_ALL}, count=1)
            if most <= 0:
                return []
            pending = await client.xpending_range(key, GROUP, min="-", max="+", count=PAGE + len(self._held), idle=idle)
            # What this consumer holds is not lost. What was sent to it, and did not arrive, is.
            counts = {row["message_id"]: row["times_delivered"] for row in pending}
            ids = [id for id in counts if (key, id) not in self._held][:most]
            if not ids:
                await self._remove_forgotten(client, key)
                return []
            # The idle time is compared again, by the server: of two consumers that saw an entry, one takes it.
            taken = await client.xclaim(key, GROUP, self._name, idle, list(ids))
            return [_delivery(key, id, fields, counts[id] + 1) for id, fields in taken if fields]

        return await self._link.run(take)

    async def _remove_forgotten(self, client: Any, key: str) -> None:
        for consumer in await client.xinfo_consumers(key, GROUP):
            if consumer["pending"] == 0 and consumer["idle"] > FORGOTTEN * 1000:
                await client.xgroup_delconsumer(key, GROUP, consumer["name"])

    async def _leave(self, queue: str, level: Level) -> None:
        key = stream_of(queue, level)

        async def remove(client: Any) -> None:
            await client.xgroup_delconsumer(key, GROUP, self._name)

        while pending := await self._pending(key, PAGE):
            await self.give_back(pending)
        await self._link.run(remove)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _tag(delivery: Delivery) -> Tag:
    tag = delivery.tag
    assert isinstance(tag, tuple), "made by _delivery"
    return tag


def _delivery(key: str, id: bytes, fields: dict[bytes, bytes], count: int = 1) -> Delivery:
    name, _, level = key.rpartition(":")
    queue = name.removeprefix("windlass:{").removesuffix("}")
    return Delivery(payload=payload_of(fields), queue=queue, level=Level(level), tag=(key, id), count=count)

"""Live lists: one task per list reads it for every listener of this server, and sends what changed.

A read returns the list as rows by key. A listener gets a `snapshot` of it first, then a `delta` per change; a null in
a delta is a row that has left.

An event's id is `FEED.NUMBER.NUMBER…`: the feed of this server, and the last number of each list of the stream. With it
in Last-Event-ID a listener resumes where it was. If this server no longer has those deltas, or the feed is another
server's, the listener gets a snapshot.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence

import msgspec

from windlass.errors import RequestRefused, StoreError, WindlassError
from windlass.web.live.events import event

Rows = dict[str, object]
Read = Callable[[], Awaitable[Rows]]
Allowed = Callable[[], Awaitable[bool]]
"""Whether the listener may still listen: its token may be revoked while the stream is open."""

log = logging.getLogger("windlass")

EVERY = 1.0  # seconds between two reads of a list
SHARE = 3  # the pause is at least this many times as long as the read was: a filter that compares every job is slow
AWAY = 3.0  # seconds after a read that failed
LINGER = 30.0  # seconds for which a list is read without a listener: one that reconnects finds its deltas
KEPT = 256  # deltas of a list that a listener can resume from
BEAT = 15.0  # seconds without an event after which a comment is sent, and the caller is checked again
LIFE = 600.0  # seconds of one stream; the listener reconnects and resumes
MOST_LISTS = 100  # that are read at a time: each of them costs one query per second
MOST_STREAMS = 5_000
APART = 10**9  # between the first numbers of two lists: an id of one that was dropped fits no later one

encode = msgspec.json.Encoder().encode


class Source(msgspec.Struct, frozen=True):
    """Where the rows of a live list come from. Sources with the same key share one list."""

    name: str  # as the events name it
    key: Hashable
    read: Read
    every: float | None = None  # seconds between two reads; EVERY unless given


class LiveList:
    """A list that is read while it has listeners."""

    def __init__(self, name: str, read: Read, first: int, every: float | None) -> None:
        self.name = name
        self.number = 0  # of the last change; 0: it was not read yet
        self.problem: str | None = None  # why the last read failed
        self._error: Exception | None = None
        self.moved = asyncio.Event()  # set with each change, and then replaced
        self.listeners = 0
        self._unheard_since = 0.0
        self._first = first
        self._every = every
        self._read = read
        self._rows: dict[str, bytes] = {}
        self._deltas: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._task: asyncio.Task[None] | None = None

    @property
    def is_read(self) -> bool:
        """Whether a task reads it now; it does so for a while after the last listener has left."""
        return self._task is not None and not self._task.done()

    def join(self) -> None:
        self.listeners += 1
        self.begin()

    def begin(self) -> None:
        """Read it from now on; it has no listener yet, and one is expected while it lingers."""
        if not self.is_read:
            self._unheard_since = asyncio.get_running_loop().time()
            self._task = asyncio.get_running_loop().create_task(self._read_on(), name=f"windlass-web-{self.name}")

    def leave(self) -> None:
        self.listeners -= 1
        self._unheard_since = asyncio.get_running_loop().time()

    def since(self, number: int | None) -> list[tuple[int, str, bytes]]:
        """The events after `number`; the whole list as one snapshot where the number is not known here."""
        if number == self.number:
            return []
        if number is not None and self._deltas and self._deltas[0][0] <= number + 1 <= self.number:
            return [(at, "delta", delta) for at, delta in self._deltas if at > number]
        return [(self.number, "snapshot", self._encode(self._rows))] if self.number else []

    async def snapshot(self) -> dict[str, msgspec.Raw]:
        """The rows as they were read last, for a request without a stream. Raises what the last read raised."""
        self.begin()
        self._unheard_since = asyncio.get_running_loop().time()
        while not self.number and self.problem is None:
            await self.moved.wait()
        if self._error is not None:
            raise self._error
        return {key: msgspec.Raw(row) for key, row in self._rows.items()}

    async def _read_on(self) -> None:
        clock = asyncio.get_running_loop().time
        while self.listeners or clock() < self._unheard_since + LINGER:
            began = clock()
            try:
                self._learn({key: encode(row) for key, row in (await self._read()).items()})
                pause = max(self._every or EVERY, SHARE * (clock() - began))
            except Exception as error:  # the task lives on: its listeners would hear only beats
                if not isinstance(error, WindlassError):
                    log.exception("a live list of the HTTP API cannot be read")
                self._fail(error)
                pause = AWAY
            await asyncio.sleep(pause)

    def _learn(self, rows: dict[str, bytes]) -> None:
        delta = {key: row for key, row in rows.items() if self._rows.get(key) != row}
        delta |= {key: b"null" for key in self._rows if key not in rows}
        if delta or not self.number or self.problem is not None:
            self._rows, self.problem, self._error = rows, None, None
            self.number = max(self.number + 1, self._first)
            self._deltas.append((self.number, self._encode(delta)))
            self._move()

    def _fail(self, error: Exception) -> None:
        problem, self._error = "the list cannot be read; the server's log has the error", error
        if isinstance(error, StoreError):
            problem = "the database does not answer now; the list follows when it does"
        elif isinstance(error, WindlassError):
            problem = str(error)
        if problem != self.problem:
            self.problem = problem
            self._move()

    def _move(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()

    def _encode(self, rows: dict[str, bytes]) -> bytes:
        return encode({"list": self.name, "rows": {key: msgspec.Raw(row) for key, row in rows.items()}})


class Feed:
    """The live lists of one server."""

    def __init__(self) -> None:
        self.name = secrets.token_hex(4)
        self.streams = 0
        self._closed = asyncio.Event()
        self._lists: dict[Hashable, LiveList] = {}
        self._firsts = itertools.count(1, APART)

    def close(self) -> None:
        """End every stream: the server stops, and listeners reconnect elsewhere."""
        self._closed.set()

    def check_room(self) -> None:
        """Refuse a stream above MOST_STREAMS, before it begins."""
        if self.streams >= MOST_STREAMS:
            raise RequestRefused(
                f"{MOST_STREAMS:,} streams are open on this server; close a page, or poll instead", status=503
            )

    def join(self, source: Source) -> LiveList:
        """The list of this source, as all its listeners share it."""
        self._lists = {key: each for key, each in self._lists.items() if each.is_read}
        if source.key not in self._lists:
            if len(self._lists) >= MOST_LISTS:
                raise RequestRefused(
                    f"{MOST_LISTS} different lists are followed on this server; close a page, or poll instead",
                    status=503,
                )
            self._lists[source.key] = LiveList(source.name, source.read, next(self._firsts), source.every)
            # At once, not with the first event: another stream may join before that, and would not find the list.
            self._lists[source.key].begin()
        return self._lists[source.key]

    async def follow(
        self, lists: Sequence[LiveList], last_id: str | None, still_allowed: Allowed
    ) -> AsyncIterator[bytes]:
        """The events of these lists for one listener."""
        for each in lists:
            each.join()
        try:
            async for sent in self._follow(lists, self._resume(last_id, lists), still_allowed):
                yield sent
        finally:
            for each in lists:
                each.leave()

    async def _follow(
        self, lists: Sequence[LiveList], seen: list[int | None], still_allowed: Allowed
    ) -> AsyncIterator[bytes]:
        told: str | None = None
        async for _ in self.turns(lambda: [each.moved for each in lists], still_allowed):
            sent = b""
            for place, each in enumerate(lists):
                for number, kind, data in each.since(seen[place]):
                    seen[place] = number
                    sent += event(kind, data, id=".".join([self.name, *(str(at or 0) for at in seen)]))
            problem = next((each.problem for each in lists if each.problem is not None), None)
            if problem is not None and problem != told:
                sent += event("problem", encode({"detail": problem}))
            told = problem
            yield sent or event(None, b"")

    async def turns(self, moved: Callable[[], Sequence[asyncio.Event]], still_allowed: Allowed) -> AsyncIterator[None]:
        """One turn at once, and one for each move or BEAT, until the stream's life, the server or the permission ends.

        The events are read before the turn: a move during the turn ends the wait at once, and none is missed.
        """
        clock = asyncio.get_running_loop().time
        ends, asks = clock() + LIFE, clock() + BEAT
        self.streams += 1
        try:
            while not self._closed.is_set() and clock() < ends:
                waits = [*moved(), self._closed]
                yield
                await _any(waits, BEAT)
                if clock() >= asks:  # by time and not by silence: a list that moves every second has no silent BEAT
                    if not await still_allowed():
                        return
                    asks = clock() + BEAT
        finally:
            self.streams -= 1

    def _resume(self, last_id: str | None, lists: Sequence[LiveList]) -> list[int | None]:
        feed, *numbers = (last_id or "").split(".")
        if feed != self.name or len(numbers) != len(lists) or not all(n.isdecimal() and len(n) < 19 for n in numbers):
            return [None] * len(lists)
        return [int(number) for number in numbers]


async def _any(events: Sequence[asyncio.Event], timeout: float) -> bool:
    """Whether one of these events was set within the time."""
    waits = [asyncio.ensure_future(each.wait()) for each in events]
    try:
        done, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for each in waits:
            each.cancel()

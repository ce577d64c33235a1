"""The script: six acts over a stream of newsletters and a heartbeat. Each act waits for the jobs that it shows.

priorities → failures and retries → a segfault in a job's own process → a limit → three phases → kill -9 of a worker
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from windlass.cli.demo import program
from windlass.cli.demo.scene import Scene, Tone
from windlass.declare.jobtype import TypedCall
from windlass.handles.job import JobHandle
from windlass.model.rows import WorkerRow
from windlass.model.state import FINAL, State

T = TypeVar("T")

CHECK_EVERY = 0.1  # seconds between two checks of a condition
MAX_CHECKS = 200  # then the act goes on; the check at the end reports what did not happen
BREATH = 1.2  # seconds to read a sentence
BEFORE_KILL = 0.8  # seconds of a render before its worker is killed

FIRST_WAVE, WAVE = 90, 50  # newsletters
FIRST_SEEN = 5  # jobs that ended before the first act
BACKLOG_MOST = 60  # newsletters that may wait before the next wave
TICKS = 20  # of the heartbeat, that are read at a time
CAST_KEPT = 1_000  # jobs that are checked at the end; a show of many hours drops the oldest ones

RESETS = ("ada", "grace", "linus", "barbara", "edsger", "margaret")
SHOPS = ("antwerp", "lisbon", "bergen")
PICTURES = ("anchor.raw", "buoy.raw", program.BROKEN, "crane.raw", "davit.raw")
RIVALS = {"rope.example": 10, "winch.example": 6}  # prices to fetch
ORDERS = range(1001, 1013)
FILMS = ("harbour.mp4", "lighthouse.mp4")


class Script:
    """The acts. `kill(number)` kills a worker process with SIGKILL."""

    def __init__(self, scene: Scene, *, kill: Callable[[int], None]) -> None:
        self._app = program.app
        self._scene = scene
        self._kill = kill
        self.cast: deque[JobHandle[Any]] = deque(maxlen=CAST_KEPT)
        self.orders: list[UUID] = []  # of the latest round
        self.victims: set[UUID] = set()
        self._enqueuing: asyncio.Future[list[JobHandle[Any]]] | None = None

    async def play(self, *, once: bool) -> None:
        """All acts, once or for ever."""
        await self._open()
        while True:
            await self._priorities()
            await self._failures()
            await self._segfault()
            await self._limit()
            await self._phases()
            await self._kill_worker()
            if once:
                await self._finale()
                return
            self._scene.narrate("all of that once more; Ctrl-C ends it")
            await self._newsletters()

    async def wait_for_enqueue(self) -> None:
        """After `play` was cancelled: wait until an enqueue that was under way is committed and counted."""
        if self._enqueuing is not None:
            await self._enqueuing

    async def read_beats(self) -> None:
        """Read the ticks that the schedule has fired."""
        self._scene.add_ticks(await program.heartbeat.aticks(TICKS))

    # The acts

    async def _open(self) -> None:
        self._scene.narrate(f"{FIRST_WAVE} newsletters wait in the store; two workers are starting")
        await self._enqueue(program.newsletter.call(reader) for reader in range(FIRST_WAVE))
        await self._until(self._has_begun)
        await asyncio.sleep(BREATH / 2)

    async def _priorities(self) -> None:
        self._scene.narrate(f"{len(RESETS)} password resets are enqueued: their priority lets them overtake")
        resets = await self._enqueue(program.password_reset.call(user) for user in RESETS)
        await self._until_ended(resets)
        await asyncio.sleep(BREATH)

    async def _failures(self) -> None:
        self._scene.narrate("failures: errors to retry, a call that hangs, two jobs that cannot succeed")
        calls: list[TypedCall[Any]] = [program.sync_stock.call(shop) for shop in SHOPS]
        calls += [program.ask_partner.call("acme"), program.import_feed.call("prices.csv"), program.refund.call(4711)]
        troubled = await self._enqueue(calls)
        await self._newsletters()
        await self._until_ended(troubled)
        self._scene.narrate("retries helped where they could; the other two jobs are dead", Tone.GOOD)
        await asyncio.sleep(BREATH / 2)

    async def _segfault(self) -> None:
        self._scene.narrate(f"a thumbnail segfaults: {program.BROKEN}, in its own process", Tone.BAD)
        before = [worker.pid for worker in self._scene.workers.values()]
        pictures = await self._enqueue(program.thumbnail.call(picture) for picture in PICTURES)
        await self._newsletters()
        await self._until_ended(pictures)
        alive = before == [worker.pid for worker in self._scene.workers.values()]
        unharmed = "; the workers are unharmed" if alive else ""
        self._scene.narrate(f"{program.BROKEN} is in quarantine after 3 crashes{unharmed}", Tone.GOOD)
        await asyncio.sleep(BREATH / 2)

    async def _limit(self) -> None:
        products = [(domain, number) for domain, count in RIVALS.items() for number in range(count)]
        most = program.AT_ONCE
        self._scene.narrate(f"{len(products)} prices of {len(RIVALS)} rivals: at most {most} at a time of each domain")
        prices = await self._enqueue(program.fetch_price.call(domain, f"product {n}") for domain, n in products)
        await self._newsletters()
        await self._until_ended(prices)
        self._scene.narrate("all prices are there, and the limit was never exceeded", Tone.GOOD)
        await asyncio.sleep(BREATH / 2)

    async def _phases(self) -> None:
        names = ", ".join(program.order.phases)
        self._scene.narrate(f"{len(ORDERS)} orders are enqueued, each one job with three phases: {names}")
        orders = await self._enqueue(program.order.call(number) for number in ORDERS)
        self.orders = [order.id for order in orders]
        await self._newsletters()
        await self._until_ended(orders)
        self._scene.narrate("all are shipped; one was packed twice, but picked once", Tone.GOOD)
        await asyncio.sleep(BREATH / 2)

    async def _kill_worker(self) -> None:
        await self._newsletters()
        films = await self._enqueue(program.render.call(film) for film in FILMS)
        number = await self._until(lambda: self._renderer(films))
        if number is None:
            return
        await asyncio.sleep(BEFORE_KILL)
        worker = self._scene.workers[number]
        row = await self._row(worker.pid)
        job = worker.busy_with("render")
        if row is None or job is None:
            return
        self._scene.narrate(f"kill -9 {worker.pid}: that was worker {number}, in the middle of a film", Tone.BAD)
        self.victims.add(UUID(job))
        self._kill(number)
        await self._watch_lease(row)
        await self._until_ended(films)
        self._scene.narrate("the film was started again, in its own process, and is done", Tone.GOOD)

    async def _finale(self) -> None:
        await program.heartbeat.apause("the show ends")
        await self.read_beats()
        self._scene.narrate("no more jobs are enqueued, the heartbeat is paused; the remaining jobs finish")
        await self._until(self._all_ended)

    # Steps

    async def _has_begun(self) -> bool:
        return self._scene.ended >= FIRST_SEEN

    async def _all_ended(self) -> bool:
        return self._scene.ended == self._scene.enqueued

    async def _newsletters(self) -> None:
        """Enqueue the next wave, unless most of the last one still waits."""
        if self._scene.counts.get(State.QUEUED, 0) < BACKLOG_MOST:
            await self._enqueue(program.newsletter.call(reader) for reader in range(WAVE))

    async def _enqueue(self, calls: Iterable[TypedCall[Any]]) -> list[JobHandle[Any]]:
        """Shielded from cancellation: an enqueue that is cancelled may still commit, and would not be counted."""

        async def enqueue() -> list[JobHandle[Any]]:
            handles = await self._app.aenqueue_many(calls)
            self._scene.enqueued += len(handles)
            self.cast += handles
            return handles

        self._enqueuing = asyncio.ensure_future(enqueue())
        return await asyncio.shield(self._enqueuing)

    async def _renderer(self, films: list[JobHandle[Any]]) -> int | None:
        """The number of a worker that renders one of these films."""
        ids = {film.id.hex for film in films}
        return next((number for number, view in self._scene.workers.items() if view.busy_with("render") in ids), None)

    async def _row(self, pid: int | None) -> WorkerRow | None:
        rows = await self._app.aworkers()
        return next((row for row in rows if row.name.endswith(f":{pid}") and not row.dead), None)

    async def _watch_lease(self, row: WorkerRow) -> None:
        """Wait from the last beat of a killed worker until a sweep marks it dead."""
        rows = {row.id: row for row in await self._app.aworkers()}
        held = rows.get(row.id, row)
        left = (held.alive_until - datetime.now(UTC)).total_seconds()
        self._scene.narrate(
            f"it held {held.running} jobs; no worker claims them before its lease expires, in {left:.0f} s"
        )

        async def buried() -> bool:
            return all(other.dead for other in await self._app.aworkers() if other.id == row.id)

        await self._until(buried)

    async def _until_ended(self, handles: list[JobHandle[Any]]) -> None:
        async def ended() -> bool:
            return all([await handle.astatus() in FINAL for handle in handles])

        await self._until(ended)

    async def _until(self, find: Callable[[], Awaitable[T]]) -> T | None:
        """What `find` returns once that is true; None when it takes too long."""
        for _ in range(MAX_CHECKS):
            if found := await find():
                return found
            await asyncio.sleep(CHECK_EVERY)
        return None

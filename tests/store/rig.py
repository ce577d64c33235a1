"""What a test of a store needs: a store on a clock that the test moves, and helpers for the jobs in it."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from windlass.model.job import Job, Lease, NewJob, new_id
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb, target
from windlass.store.protocol import Claim, Claimed, Finished, NewWorker, Store, Suspects

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from windlass.store.migrate import Migrator
    from windlass.testing.clock import ManualClock

LEASE = 30.0  # seconds
TYPE = "mail.send"


@dataclass(kw_only=True)
class Rig:
    """A store under test. `run` executes SQL past the store; `{}` stands before a table's name."""

    store: Store
    migrator: Migrator
    dialect: str
    clock: ManualClock
    run: Callable[[str], Awaitable[Any]]
    move: Callable[[], Awaitable[None]]
    another: Callable[[], Store]  # on the same database, not open yet
    worker: UUID = field(default_factory=uuid4)

    async def advance(self, seconds: float) -> None:
        """Move the store's time and the process's."""
        self.clock.advance(seconds)
        await self.move()

    @asynccontextmanager
    async def stores(self, count: int) -> AsyncIterator[list[Store]]:
        """The rig's store and others on the same database, as other processes have them."""
        async with AsyncExitStack() as stack:
            stores = [self.store]
            for _ in range(count - 1):
                store = self.another()
                await store.open()
                stack.push_async_callback(store.close)
                stores.append(store)
            yield stores

    # Given

    async def register(
        self,
        *,
        queues: tuple[str, ...] | None = None,
        lease: float = LEASE,
        isolates: bool = False,
        types: tuple[str, ...] = (TYPE,),
    ) -> UUID:
        worker = NewWorker(
            id=uuid4(), name="host:1", lease=lease, queues=queues, types=types, concurrency=10, isolates=isolates
        )
        await self.store.register(worker)
        return worker.id

    async def enqueue(self, **options: Any) -> UUID:
        (job,) = await self.enqueue_many(1, **options)
        return job

    async def enqueue_many(self, count: int, **options: Any) -> list[UUID]:
        jobs = [new_job(**options) for _ in range(count)]
        await self.store.enqueue(jobs)
        return [job.id for job in jobs]

    async def close_gate(self, kind: str, name: str, state: str = "paused") -> None:
        await self.run(f"INSERT INTO {{}}gates (kind, name, state) VALUES ('{kind}', '{name}', '{state}')")

    async def held(self, **options: Any) -> Job:
        """One running job of the rig's worker, and no other."""
        job = await self.enqueue(**options)
        (claimed,) = await self.claim(room=1)
        assert claimed.id == job
        return claimed

    async def running(self, **options: Any) -> Job:
        """A running job of the rig's worker in a queue of its own, whatever else is queued."""
        job = alone(**options)
        assert await self.store.enqueue([job]) == {}
        return await self.take(job.id)

    async def take(self, job: UUID, *, worker: UUID | None = None) -> Job:
        """This very job, claimed from the queue of its own."""
        wanted = await self.find(job)
        (claimed,) = await self.claim(room=1, worker=worker, types=(wanted.type,), queues=(wanted.queue,))
        assert claimed.id == job
        return claimed

    async def job_in(self, state: State, **options: Any) -> UUID:
        """A job that came into `state` along the edges of the table; with options it is in a queue of its own."""
        if state is State.QUEUED:
            return await self.enqueue(**options)
        job = await self.running(**options) if options else await self.held()
        if state is State.CANCELLED:
            await self.write(job.lease, Verb.STOP)
        elif state is not State.RUNNING:
            await self.write(job.lease, WAY[state], delay=60.0)
        assert await self.status(job.id) is state
        return job.id

    # When

    async def claim(self, **options: Any) -> list[Job]:
        """Leased jobs, of any lane: the claim reads below the floors."""
        return (await self.ask(**options)).jobs

    async def ask(
        self,
        *,
        room: int = 10,
        worker: UUID | None = None,
        types: tuple[str, ...] = (TYPE,),
        queues: tuple[str, ...] | None = None,
        aged: int = 0,
        suspects: Suspects = Suspects.WITH,
        untouched: float = 0.0,
        by_creation: bool = False,
        overdue: float = 0.0,
        rescan: bool = True,
        store: Store | None = None,
    ) -> Claimed:
        """A claim with its whole answer, by the rig's store where no other is named."""
        return await (store or self.store).claim(
            Claim(
                worker=worker or self.worker,
                room=room,
                types=types,
                queues=queues,
                rescan=rescan,
                aged=aged,
                suspects=suspects,
                untouched=untouched,
                by_creation=by_creation,
                overdue=overdue,
            )
        )

    async def write(self, lease: Lease, verb: Verb, **options: Any) -> Finished:
        return await self.store.finish([Transition(lease=lease, verb=verb, **options)])

    async def finish(self, job: Job, verb: Verb, *, store: Store | None = None, **options: Any) -> State | None:
        """End an attempt as the engine does: the state the job is in now, None when its lease was lost."""
        known = {"followed": job.followed, "limited": bool(job.limits)}
        transition = Transition(lease=job.lease, verb=verb, **(known | options))
        return (await (store or self.store).finish([transition])).states.get(job.id)

    async def die(self, worker: UUID) -> None:
        """The worker's lease runs out; no sweep has run yet."""
        del worker  # named for the reader: every worker that does not beat dies with the time
        await self.advance(LEASE + 1)

    # Then

    async def find(self, job: UUID) -> Job:
        found = await self.store.find(job)
        assert found is not None
        return found

    async def status(self, job: UUID) -> State:
        return (await self.find(job)).status


WAY = {
    State.SUCCEEDED: Verb.SUCCEED,
    State.FAILED: Verb.FAIL,
    State.DEAD: Verb.BURY,
    State.WAITING: Verb.WAIT,
}


def new_job(**options: Any) -> NewJob:
    defaults: dict[str, Any] = {"id": new_id(), "type": TYPE, "input": "{}"}
    if options.get("unique") is not None:
        defaults["key"] = options["unique"].key  # the key that people see is the one that refuses
    return NewJob(**(defaults | options))


def alone(**options: Any) -> NewJob:
    """A new job in a queue of its own, so that a claim can name it."""
    return new_job(**({"queue": f"queue-{uuid4().hex[:12]}"} | options))


def arrives_in(verb: Verb) -> State:
    state = target(verb)
    assert state is not None
    return state

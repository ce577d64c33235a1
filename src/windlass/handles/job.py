"""What an enqueue returns: a hold on one job, to ask after it and to act on it. Each call has an `a…` twin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar
from uuid import UUID

import msgspec

from windlass.clock import Duration, seconds
from windlass.declare.registry import Definition
from windlass.errors import FlowError, JobCancelled, JobDead, JobNotFound, ResultTimeout
from windlass.model.job import Failure, Job, NewJob
from windlass.model.state import FINAL, State, Verb
from windlass.names import name_problem
from windlass.payload.packing import pack
from windlass.store.parts.messages import cancel_message

if TYPE_CHECKING:
    from windlass.client import Client
    from windlass.store.protocol import Store

R = TypeVar("R")

FIRST_LOOK = 0.002  # seconds between two looks for a result, doubling …
LONGEST_LOOK = 0.25  # … up to this


class JobHandle(Generic[R]):
    """One job, by its id."""

    def __init__(
        self, client: Client, id: UUID, definition: Definition | None = None, *, existing: bool = False
    ) -> None:
        self.id = id
        self.existing = existing
        """Whether the enqueue made no new job, because this one held its key already."""
        self._client = client
        self._definition = definition

    @classmethod
    def of(cls, client: Client, job: NewJob, definition: Definition, existing: Mapping[UUID, UUID]) -> JobHandle[R]:
        """A hold on a new job, or on the one that answers for it."""
        return cls(client, existing.get(job.id, job.id), definition, existing=job.id in existing)

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # The record

    def record(self) -> Job:
        """The whole record as it is now."""
        return self._client.ask(self._find, twin="job.arecord()")

    async def arecord(self) -> Job:
        return await self._client.aask(self._find)

    def status(self) -> State:
        """The state the job is in now."""
        return self._client.ask(self._find, twin="job.astatus()").status

    async def astatus(self) -> State:
        return (await self._client.aask(self._find)).status

    def label(self) -> str:
        """The state as the job's type or pipeline calls it (`labels=`); of a pipeline's job on its way, the phase."""
        return self._client.ask(self._label, twin="job.alabel()")

    async def alabel(self) -> str:
        return await self._client.aask(self._label)

    # The result

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the job to end and return its result; raises JobDead, JobCancelled or ResultTimeout."""
        return self._client.ask(self._wait(timeout), twin="job.aresult(…)")

    async def aresult(self, timeout: Duration | None = None) -> R:
        return await self._client.aask(self._wait(timeout))

    # Acting on it

    def cancel(self) -> State:
        """Cancel: at once when it does not run, else by asking; the answer is the state it is in now."""
        return self._client.ask(self._operate(Verb.CANCEL), twin="job.acancel()") or State.CANCELLED

    async def acancel(self) -> State:
        return await self._client.aask(self._operate(Verb.CANCEL)) or State.CANCELLED

    def retry(self) -> State | None:
        """Make a failed job due now."""
        return self._client.ask(self._operate(Verb.RETRY), twin="job.aretry()")

    async def aretry(self) -> State | None:
        return await self._client.aask(self._operate(Verb.RETRY))

    def replay(self) -> State | None:
        """Let a dead job start over: same id, attempts from zero."""
        return self._client.ask(self._operate(Verb.REPLAY), twin="job.areplay()")

    async def areplay(self) -> State | None:
        return await self._client.aask(self._operate(Verb.REPLAY))

    def resume(self) -> State | None:
        """Bring a cancelled job back."""
        return self._client.ask(self._operate(Verb.RESUME), twin="job.aresume()")

    async def aresume(self) -> State | None:
        return await self._client.aask(self._operate(Verb.RESUME))

    def discard(self) -> None:
        """Remove a dead job for good."""
        self._client.ask(self._operate(Verb.DISCARD), twin="job.adiscard()")

    async def adiscard(self) -> None:
        await self._client.aask(self._operate(Verb.DISCARD))

    def signal(self, name: str, value: object = None) -> bool:
        """Send what `ctx.signal(name)` waits for, or will. False: there was one of that name already, and it counts."""
        return self._client.ask(self._signal(name, value), twin="job.asignal(…)")

    async def asignal(self, name: str, value: object = None) -> bool:
        return await self._client.aask(self._signal(name, value))

    # What both twins do

    async def _find(self, store: Store) -> Job:
        job = await store.find(self.id)
        if job is None:
            raise JobNotFound(
                f"there is no job {self.id}: its transaction has not committed, it was discarded, or its history passed"
            )
        return job

    async def _label(self, store: Store) -> str:
        job = await self._find(store)
        return job.status.value if self._definition is None else self._definition.label(job)

    def _operate(self, verb: Verb) -> Callable[[Store], Awaitable[State | None]]:
        async def operate(store: Store) -> State | None:
            state = await store.operate(verb, self.id, actor=self._client.settings.acting)
            if verb is Verb.CANCEL and state is State.RUNNING:
                await store.wake(cancel_message(self.id))
            elif state is State.QUEUED:
                await store.wake((await self._find(store)).queue)
            return state

        return operate

    def _signal(self, name: str, value: object) -> Callable[[Store], Awaitable[bool]]:
        problem = name_problem(name)
        if problem is not None:
            raise FlowError(f"the name of a signal {problem}")
        payload = pack(value, what=f"signal {name!r}")
        return lambda store: store.signal(self.id, name, payload, actor=self._client.settings.acting)

    def _wait(self, timeout: Duration | None) -> Callable[[Store], Awaitable[R]]:
        limit = None if timeout is None else seconds(timeout, what="timeout")

        async def wait(store: Store) -> R:
            pause = FIRST_LOOK
            try:
                async with asyncio.timeout(limit):
                    while (job := await self._find(store)).status not in FINAL:
                        await asyncio.sleep(pause)
                        pause = min(pause * 1.5, LONGEST_LOOK)
            except TimeoutError:
                raise ResultTimeout(
                    f"job {self.id} has not ended within {limit:g} s and goes on; ask again, or look: job.status()"
                ) from None
            return self._result_of(job)

        return wait

    def _result_of(self, job: Job) -> R:
        if job.status is State.CANCELLED:
            raise JobCancelled(f"job {self.id} ({job.type}) was cancelled; bring it back: job.resume()")
        if job.status is State.DEAD:
            last = None if job.error is None else msgspec.json.decode(job.error, type=Failure)
            why = "" if last is None else f": {last.type}: {last.message}"
            raise JobDead(f"job {self.id} ({job.type}) is dead ({job.reason}){why}; start it over: job.replay()")
        text = job.output if job.output is not None else "null"
        result: R = msgspec.json.decode(text) if self._definition is None else self._definition.signature.result(text)
        return result

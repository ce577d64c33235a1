"""What one run of a handler reads from the runs before it, and what it adds: results of steps, deadlines, signals.

A handler that waits starts again from the top. Memory makes that cheap and safe: a later run reads what an earlier run
stored under the same name, and a run can use each name once, so a name means one thing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID

import msgspec

from windlass.clock import Clock
from windlass.errors import FlowError, LeaseLost, StoreUnavailable
from windlass.handler.transaction import AttemptTransaction, OpensTransaction
from windlass.model.admission import Grant
from windlass.model.flow import Linked, Memory, Recollection, outputs_in
from windlass.model.job import Job, Lease
from windlass.names import name_problem

T = TypeVar("T")

CALLS = {
    "step": 'ctx.step("charge", charge, order)',
    "sleep": 'ctx.sleep("nap", "3d")',
    "signal": 'ctx.wait_signal("approved")',
    "child": 'ctx.spawn("fetch", fetch.call(url))',
}
"""How each thing that has a name is called, for messages."""

APART = " "
"""Begins or ends Windlass's own names: no name of a program begins or ends with white space."""

SLACK = timedelta(milliseconds=1)  # a nearer deadline counts as passed: a wait for it would cost more
FIRST_PAUSE = 0.05  # seconds after the database did not answer, doubling …
LONGEST_PAUSE = 2.0  # … up to this


class ContextStore(OpensTransaction, Protocol):
    """The methods of a store that a handler's context uses."""

    async def recall(self, job: UUID) -> Recollection: ...

    async def links(self, job: UUID) -> list[Linked]: ...

    async def find_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]: ...

    async def remember(self, lease: Lease, memory: Memory) -> bool: ...

    async def acquire(self, bucket: str, *, most: float) -> Grant: ...

    async def hold_back(self, bucket: str, seconds: float) -> None: ...

    async def held_for(self, bucket: str) -> float: ...


class RunMemory:
    """The memory of one attempt. `waited` is how many seconds ago the job was claimed."""

    def __init__(
        self,
        job: Job,
        *,
        store: ContextStore,
        clock: Clock,
        waited: float,
        patience: float,
        transaction: AttemptTransaction,
    ) -> None:
        self.job = job
        self.store = store
        self.transaction = transaction
        self._clock = clock
        self._claimed = clock.monotonic() - waited
        self._patience = patience  # seconds to retry while the database does not answer: the lease ends then
        self._taken: dict[str, str] = {}
        self._recollection: Recollection | None = None
        self._doubtful = False  # a name was released in this run
        self._reading = asyncio.Lock()

    @property
    def is_first_run(self) -> bool:
        """Whether no earlier run can have stored anything. Signals may have been sent even so."""
        return self.job.fence == 1

    def now(self) -> datetime:
        """The database's time: the time of the claim, plus what this process measured since."""
        assert self.job.claimed_at is not None
        return self.job.claimed_at + timedelta(seconds=self._clock.monotonic() - self._claimed)

    # Names

    def take(self, name: str, what: str) -> str:
        """Use a name in this run; the answer is the key under which it is stored."""
        check_name(name, what)
        if name in self._taken:
            raise FlowError(
                f"{what} {name!r}: this run has a {self._taken[name]} of that name already, and one name is remembered "
                f'once; give each its own, such as f"{name}-{{n}}"'
            )
        self._taken[name] = what
        return self.key_of(name)

    def give_back(self, name: str) -> None:
        """Let the run use the name again: nothing was stored under it."""
        self._taken.pop(name, None)
        # Unless the commit succeeded and only its answer was lost: read the store again.
        self._doubtful = True
        self._recollection = None

    def key_of(self, name: str) -> str:
        """The key of a name: the phases of a pipeline share a job, but not its names."""
        return name if self.job.pipeline is None else f"{self.job.phase}/{name}"

    # What earlier runs stored

    async def read(self, key: str) -> str | None:
        """What an earlier run stored under the key, as JSON."""
        return None if self.is_first_run and not self._doubtful else (await self._recall()).steps.get(key)

    async def read_output(self, phase: str) -> Any:
        """What an earlier phase of the job's pipeline returned."""
        outputs = outputs_in((await self._recall()).steps)
        if phase not in outputs:
            raise FlowError(
                f"no phase {phase!r} of this job has ended; there "
                + (f"are: {', '.join(sorted(outputs))}" if outputs else "are none before this one")
            )
        return msgspec.json.decode(outputs[phase])

    async def read_signal(self, signal: str) -> str | None:
        """The payload of a signal that was sent, as JSON. An unknown signal is read from the store again."""
        known = self._recollection
        if known is not None and signal in known.signals:
            return known.signals[signal]
        return (await self._recall(again=True)).signals.get(signal)

    async def _recall(self, *, again: bool = False) -> Recollection:
        async with self._reading:
            if self._recollection is None or again:
                self._recollection = await self.store.recall(self.job.id)
            return self._recollection

    # What this run stores

    async def keep(self, memory: Memory) -> None:
        """Store at once and durably, under the lease; while the attempt's transaction is open, with its commit."""
        transaction, lease = self.transaction.transaction, self.job.lease
        if transaction is not None:
            kept = await transaction.remember(lease, memory)
        else:
            kept = await self.retry_while_leased(lambda: self.store.remember(lease, memory))
        if not kept:
            raise self.lease_lost(memory.name)

    async def retry_while_leased(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until the database answers, for as long as the lease can last: the effect to record has happened."""
        failures, end = 0, self._clock.monotonic() + self._patience
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                failures += 1
                pause = random.uniform(0.01, min(LONGEST_PAUSE, FIRST_PAUSE * 2**failures))
                if self._clock.monotonic() + pause > end:
                    raise
                await self._clock.sleep(pause)

    def lease_lost(self, name: str) -> LeaseLost:
        return LeaseLost(
            f"job {self.job.id} is not this worker's any more: {name!r} was not remembered, and nothing was changed"
        )

    # Deadlines

    async def deadline(self, key: str, delay: float) -> tuple[datetime, tuple[Memory, ...]]:
        """When the wait under this key ends, and what to store if the wait begins now."""
        known = await self.read(key)
        if known is None:
            until = self.now() + timedelta(seconds=delay)
            return until, (Memory(key, msgspec.json.encode(until).decode()),)
        try:
            return msgspec.json.decode(known, type=datetime), ()
        except msgspec.DecodeError:
            raise FlowError(
                f"{key!r} was a step in an earlier run of this job, and is a wait now; give the wait a new name"
            ) from None

    def seconds_until(self, until: datetime) -> float:
        """Seconds until that time; 0 when it has passed."""
        rest = until - self.now()
        return rest.total_seconds() if rest > SLACK else 0.0

    async def has_expired(self, key: str) -> bool:
        """Whether an earlier run of this job got the timeout of this wait."""
        return await self.read(key + APART) is not None

    async def expire(self, key: str) -> None:
        """Store that the wait timed out: the handler took another path then, and later runs must take it too."""
        if not await self.has_expired(key):
            await self.keep(Memory(key + APART, "true"))


def check_name(name: object, what: str) -> None:
    problem = name_problem(name)
    if problem is not None:
        hint = "" if isinstance(name, str) else f"; the name comes first: {CALLS[what]}"
        raise FlowError(f"the name of a {what} {problem}{hint}")

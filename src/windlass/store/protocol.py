"""The store: the only truth about jobs. Two implementations, PostgreSQL and SQLite, one contract suite.

In:   NewJob, Claim, Transition
Out:  rows, committed together with whatever follows from them
Next: store/postgres/queries/candidates.sql and store/sqlite/claim.py, where a stored job is claimed

Rules every implementation keeps:

- Time is the database's. No caller passes "now".
- Whoever finishes, records or releases names a lease; a lease that is not current changes zero rows.
- States change only along `state.TRANSITIONS`; the WHERE clauses are made from that table.
- A batch is one round trip where it can be, and each job's transition is whole or not there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import msgspec

from windlass.model.flow import Linked, Memory, Recollection, Waiting
from windlass.model.job import Job, Lease, NewJob
from windlass.model.outcome import Progress, Transition
from windlass.model.state import State, Verb
from windlass.store.contact import Contact
from windlass.store.protocol_admission import AdmissionStore
from windlass.store.protocol_schedules import ScheduleStore

if TYPE_CHECKING:
    from windlass.model.filter import Filter

RESCUES_PER_CRASH = 10
"""A job that never crashed by itself dies after max_crashes times so many deaths of its workers: no poison for ever."""


class NewWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's incarnation: a fresh id for every start of a process, and again after a lost lease."""

    id: UUID
    name: str  # host:pid, for people
    lease: float  # seconds
    queues: tuple[str, ...] | None  # None: every queue
    types: tuple[str, ...]
    concurrency: int
    isolates: bool = False  # runs suspects in processes of their own


class Suspects(StrEnum):
    """Whether a claim may take jobs that a worker died with."""

    WITH = "with"
    WITHOUT = "without"  # the program cannot be imported in a child, and this worker holds other jobs
    ONLY = "only"  # …and this worker holds nothing: it takes one suspect, alone


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A wish for leased jobs."""

    worker: UUID
    room: int  # at most so many
    types: tuple[str, ...]  # others are skipped without a lease or an attempt
    queues: tuple[str, ...] | None = None
    rescan: bool = False  # look below the claim floor too, for what committed late
    aged: int = 0  # so many places of `room` go to the oldest due jobs of any priority
    suspects: Suspects = Suspects.WITH
    rest: float = 0.0  # only rows untouched for so many seconds (the steady pace)
    by_creation: bool = False  # order by created_at instead of run_at (the steady pace)


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """Leased jobs in the order in which they should start."""

    jobs: list[Job]
    next_due: float | None = None  # seconds until the next job this claim could have; None: unknown or none
    filled: bool = False  # there may be more, although it brought fewer than its room: some met a full limit


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker holds by the store's account."""

    jobs: list[Job]
    unreadable: list[Lease] = []  # of rows with a value that no job can have, such as a time after the year 9999


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch of transitions came to: the state each job is in now, or its lease was lost."""

    states: Mapping[UUID, State]
    lost: frozenset[UUID]
    left: frozenset[UUID] = frozenset()  # not written: the store went away or refused them after it had written others
    let_in: frozenset[str] = frozenset()  # queues in which parked jobs may run now; nobody has been told yet


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What one sweep did."""

    deaths: int = 0  # workers marked dead
    rescued: int = 0  # jobs given back
    dead_after_crashes: int = 0  # jobs whose worker died once too often
    late: bool = False  # the database was away: no job was given back yet


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as others see it."""

    id: UUID
    name: str
    started_at: datetime
    alive_until: datetime
    dead: bool
    idle: bool
    queues: tuple[str, ...] | None
    types: tuple[str, ...]
    concurrency: int
    running: int  # leases it holds


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its jobs by state."""

    queue: str
    queued: int
    running: int
    failed: int
    waiting: int
    dead: int
    lag: float | None  # seconds since its oldest due job could have started


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """A final transition, or what an operator did."""

    number: int
    at: datetime
    action: str  # JOB_SUCCEEDED, JOB_DEAD, …, or the word of a job's type
    actor: str | None  # None: the engine
    job: UUID | None
    type: str | None
    queue: str | None
    tenant: str | None
    reason: str | None
    subject: str | None = None  # what an operator acted on, where it is no job: `queue:mail`, `schedule:nightly`


class Heartbeat(Protocol):
    """A connection of its own that only says "alive". Used from a thread with its own event loop."""

    async def beat(self, worker: UUID, lease: float, held: int = 0, *, within: float | None = None) -> bool:
        """Extend the worker's life by `lease`, and note how many jobs it holds, as it sees it.

        False when its row is dead or gone, and then nothing changed. It is cancelled after `within` seconds, and then
        the next beat is made on a new connection.
        """
        ...

    async def close(self) -> None: ...


class Transaction(Protocol):
    """An open transaction on the store's own database, for `ctx.transaction()`. `$n` parameters everywhere."""

    def execute(self, sql: str, *args: Any) -> Coroutine[Any, Any, str]:
        """Run one statement; the answer is a short status such as `INSERT 1`."""
        ...

    def fetch(self, sql: str, *args: Any) -> Coroutine[Any, Any, list[dict[str, Any]]]: ...

    def enqueue(self, jobs: Sequence[NewJob]) -> Coroutine[Any, Any, Mapping[UUID, UUID]]:
        """As `Store.enqueue`, inside this transaction."""
        ...

    def remember(self, lease: Lease, memory: Memory) -> Coroutine[Any, Any, bool]:
        """A step's result, committed with whatever else this transaction writes; False when the lease is lost."""
        ...

    async def finish(self, transition: Transition) -> bool:
        """Write the transition inside this transaction; False when the lease is not current."""
        ...

    async def savepoint(self) -> None: ...

    async def release(self) -> None:
        """Keep what was written since the innermost savepoint."""
        ...

    async def rollback_to(self) -> None:
        """Undo what was written since the innermost savepoint."""
        ...

    async def commit(self) -> None: ...

    def lost(self, error: Exception) -> bool:
        """Whether `finish` or `commit` failed with `error` for a reason that the handler cannot have caused."""
        ...

    async def rollback(self) -> None: ...


class Store(AdmissionStore, ScheduleStore, Protocol):
    """What the client, the runtime and the operators ask of a database."""

    contact: Contact  # told of each answer

    async def open(self) -> None:
        """Connect and check the schema; raises StoreUnavailable, SchemaMissing, SchemaOutdated, SchemaTooNew."""
        ...

    async def close(self) -> None: ...

    async def location(self) -> str:
        """Which database this is, to compare with a caller's connection: `sqlite:<path>`, `postgres:<installation>`."""
        ...

    # The way in

    async def enqueue(self, jobs: Sequence[NewJob]) -> Mapping[UUID, UUID]:
        """All of them, or none. Wakes idle workers after the commit.

        A job whose key is held already is not written; the answer names, by the new id, the job that holds it.
        Raises IdempotencyConflict, and writes nothing, when an idempotency key was used for something else.
        """
        ...

    # A worker's life

    async def register(self, worker: NewWorker) -> None: ...

    async def deregister(self, worker: UUID) -> None:
        """Say goodbye; only a worker that holds no job may go."""
        ...

    def heartbeat(self) -> Heartbeat: ...

    async def set_idle(self, worker: UUID, *, idle: bool) -> None:
        """Commit the worker's idle mark: while it stands, an enqueue sends a wake-up."""
        ...

    def wakeups(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Wake-ups as they come: a queue's name, `*` for any, or one of `messages.py`. Losing one costs a poll."""
        ...

    def wake_later(self, queues: set[str]) -> None:
        """Wake idle workers of these queues soon, without keeping the caller."""
        ...

    async def wake(self, message: str) -> None:
        """Send a wake-up to every worker that listens."""
        ...

    # A job's life

    async def claim(self, claim: Claim) -> Claimed:
        """Lease up to `room` due jobs for a worker that is registered and not dead; none for any other."""
        ...

    async def held(self, worker: UUID, known: Collection[UUID] = ()) -> Held:
        """The running jobs of this worker besides those it knows: asked when the answer to a claim was lost."""
        ...

    async def finish(self, transitions: Sequence[Transition]) -> Finished:
        """Finish, fail, snooze, release…: every transition whose lease is current.

        A job that was asked to cancel and would become claimable again becomes `cancelled` instead. Raises ValueRefused
        when a value of one of them cannot be stored, and another StoreError when the database is the reason or may be.
        """
        ...

    async def put_aside(self, lease: Lease, reason: str) -> bool:
        """Bury a job with the least that can be written; its slots go back, and nothing else follows.

        The last way out for a job whose transition cannot be written at all; False when the lease is lost.
        """
        ...

    async def record(self, progress: Sequence[Progress]) -> None:
        """Write progress under the leases that are current."""
        ...

    async def recall(self, job: UUID) -> Recollection:
        """What earlier runs of this job remembered, and the signals sent to it."""
        ...

    async def links(self, job: UUID) -> list[Linked]:
        """The jobs this one knows by name, as they are now."""
        ...

    async def waiting(self, job: UUID) -> Waiting | None:
        """What this job waits for; None when it does not wait."""
        ...

    async def find_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]: ...

    async def remember(self, lease: Lease, memory: Memory) -> bool:
        """Keep a step's result under the lease, at once and durably; False when the lease is not current."""
        ...

    async def signal(self, job: UUID, name: str, payload: str, *, actor: str | None = None) -> bool:
        """Send a signal (JSON) to a job that has not ended, and wake it if it waits for it.

        The first of a name is kept, whether or not anybody waits yet; False when there was one already. Raises
        JobNotFound or TransitionRefused.
        """
        ...

    async def cancel_requests(self, worker: UUID) -> list[UUID]:
        """Running jobs of this worker that somebody asked to cancel."""
        ...

    async def settled_by(self, lease: Lease) -> bool:
        """Whether this very lease finished its job: asked when the answer to a commit was lost."""
        ...

    def transaction(self, *, limit: float) -> AbstractAsyncContextManager[Transaction]:
        """Begin one; it is rolled back at the end of the block unless committed, and after `limit` seconds."""
        ...

    # Sweeping and housekeeping

    async def sweep(
        self,
        *,
        max_crashes: int,
        crash_counts: bool = False,
        blames: bool = True,
        patience: float | None = None,
        page: int = 500,
    ) -> Swept:
        """Mark silent workers dead and commit; then give their jobs back, in pages that never wait.

        A crash is counted against the jobs only when it `blames`. With `crash_counts` a job keeps the attempt that was
        interrupted, and is dead when it was the last one. A sweep whose first step took longer than `patience` seconds
        ends after it, and is `late`: the database was away, and workers may be silent for that.
        """
        ...

    async def wake_due(self, *, page: int = 500) -> int:
        """Wake the waiting jobs whose timer ran out: how many."""
        ...

    async def lead(self, name: str, worker: UUID, lease: float) -> bool:
        """Take or keep the leadership `name` for `lease` seconds; False while another holds it."""
        ...

    async def prune(self, *, history: float, audit: float) -> None:
        """Leader only: prepare the next partitions, drop what is older than `history` and `audit` seconds."""
        ...

    # Looking and operating

    async def find(self, job: UUID) -> Job | None: ...

    async def operate(self, verb: Verb, job: UUID, *, actor: str | None = None) -> State | None:
        """CANCEL, RETRY, REPLAY, RESUME or DISCARD one job: the state it is in now, None when it is gone.

        The audit names `actor`. CANCEL goes down to the jobs that this one created; a running one is left running
        and its request is marked. Raises JobNotFound or TransitionRefused.
        """
        ...

    async def counts(self) -> dict[State, int]:
        """Jobs by state, history included."""
        ...

    async def workers(self) -> list[WorkerRow]: ...

    async def search(self, filter: Filter, *, page: int = 50, below: UUID | None = None) -> list[Job]:
        """Jobs that match, newest first; the next page begins below the last id of this one."""
        ...

    async def queues(self) -> list[QueueRow]: ...

    async def audit(
        self, *, job: UUID | None = None, action: str | None = None, page: int = 50, below: int | None = None
    ) -> list[AuditRow]:
        """What was recorded, newest first; the next page begins below the last number of this one."""
        ...

"""What a store does: it holds every job. Two implementations, PostgreSQL and SQLite, pass one contract suite.

Rules that every implementation keeps:

- Time is the database's. No caller passes "now".
- A finish, a record of progress and a release name a lease; a lease that is not current changes zero rows.
- States change only along `state.TRANSITIONS`; an operation's WHERE clause is made from that table.
- A batch is one round trip where it can be, and each job's transition is written whole or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import msgspec

from windlass.model.flow import Linked, Memory, Recollection, Waiting
from windlass.model.job import Job, Lease, NewJob
from windlass.model.job_types import TypeRow
from windlass.model.outcome import Progress, Transition
from windlass.model.rows import AuditRow, FoundJob, JobState, WorkerRow
from windlass.model.state import State, Verb
from windlass.store.contact import Contact
from windlass.store.protocol_admission import AdmissionStore
from windlass.store.protocol_delivery import DeliveryStore
from windlass.store.protocol_figures import FigureStore
from windlass.store.protocol_links import LinkStore
from windlass.store.protocol_overview import OverviewStore
from windlass.store.protocol_schedules import ScheduleStore
from windlass.store.protocol_tokens import TokenStore

if TYPE_CHECKING:
    from datetime import datetime

    from windlass.model.filter import Filter

RESCUES_PER_CRASH = 10
"""A job is dead after max_crashes times this many deaths of its workers, though none was counted as its own crash.

Otherwise a job that kills its workers in a way that is never blamed on it would run for ever.
"""


class NewWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as it registers: with a new id for every start of a process, and again after a lost lease."""

    id: UUID
    name: str  # host:pid, for display
    lease: float  # seconds
    queues: tuple[str, ...] | None  # None: every queue
    types: tuple[str, ...]
    concurrency: int
    isolates: bool = False  # it runs suspects in processes of their own
    version: str | None = None  # of the user's program, where the setting names it
    windlass: str | None = None  # the version of Windlass


class Suspects(StrEnum):
    """Whether a claim may take suspects: jobs that were running when a worker died."""

    WITH = "with"
    WITHOUT = "without"  # a plain claim: suspects are claimed apart from other jobs
    ONLY = "only"  # for a worker that cannot run children and holds nothing: it takes one suspect, alone


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's request for leased jobs."""

    worker: UUID
    room: int  # the most jobs it returns
    types: tuple[str, ...]  # jobs of other types are skipped without a lease or an attempt
    queues: tuple[str, ...] | None = None
    rescan: bool = False  # read below the claim floor too, for jobs that committed late
    aged: int = 0  # this many places of `room` go to the oldest due jobs of any priority
    suspects: Suspects = Suspects.WITH
    untouched: float = 0.0  # only rows that did not change for this many seconds (setting `untouched`)
    by_creation: bool = False  # order by created_at instead of run_at (setting `order`)
    overdue: float = 0.0  # only jobs that have been due, and their rows unchanged, for this many seconds


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """Leased jobs in the order in which they should start."""

    jobs: list[Job]
    next_due: float | None = None  # seconds until the next job that this claim could have; None: unknown or none
    filled: bool = False  # there may be more although fewer than `room` came: some candidates met a full limit


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that a worker holds, as the store has them."""

    jobs: list[Job]
    unreadable: list[Lease] = []  # leases of rows with a value that no job can have, such as a time after year 9999


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a batch of transitions: the state in which each job is now, or that its lease was lost."""

    states: Mapping[UUID, State]
    lost: frozenset[UUID]
    left: frozenset[UUID] = frozenset()  # not written: the store failed or refused them after it had written others
    unparked_queues: frozenset[str] = frozenset()  # PostgreSQL: the caller wakes workers for them; SQLite has done it


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What one sweep did."""

    deaths: int = 0  # workers marked dead
    rescued: int = 0  # jobs of dead workers, claimable again
    dead_after_crashes: int = 0  # jobs that are dead now, because too many of their workers died
    late: bool = False  # the database had not answered for long: no job was rescued yet


class Heartbeat(Protocol):
    """A connection that only renews a worker's lease. Used from a thread with its own event loop."""

    async def beat(
        self, worker: UUID, lease: float, held: int = 0, pools: str | None = None, *, within: float | None = None
    ) -> bool:
        """Renew the worker's lease for `lease` seconds, and record how many jobs it holds and what its processors do.

        False when its row is dead or deleted, and then nothing changed. The beat is cancelled after `within` seconds,
        and then the next beat uses a new connection.
        """
        ...

    async def close(self) -> None: ...


class Transaction(Protocol):
    """An open transaction on the store's own database, for `ctx.transaction()`. `$n` parameters everywhere."""

    def execute(self, sql: str, *args: Any) -> Coroutine[Any, Any, str]:
        """Run one statement; returns a short status such as `INSERT 1`."""
        ...

    def fetch(self, sql: str, *args: Any) -> Coroutine[Any, Any, list[dict[str, Any]]]: ...

    def enqueue(self, jobs: Sequence[NewJob]) -> Coroutine[Any, Any, Mapping[UUID, UUID]]:
        """As `Store.enqueue`, inside this transaction."""
        ...

    def remember(self, lease: Lease, memory: Memory) -> Coroutine[Any, Any, bool]:
        """Store a step's result, committed with everything else in this transaction; False when the lease is lost."""
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


class Store(AdmissionStore, DeliveryStore, FigureStore, LinkStore, OverviewStore, ScheduleStore, TokenStore, Protocol):
    """What the client, the runtime and the operators call."""

    contact: Contact  # records each answer of the database

    async def open(self) -> None:
        """Connect and check the schema; raises StoreUnavailable, SchemaMissing, SchemaOutdated, SchemaTooNew."""
        ...

    async def close(self) -> None: ...

    async def location(self) -> str:
        """Which database this is, to compare with a caller's connection: `sqlite:<path>`, `postgres:<installation>`."""
        ...

    async def now(self) -> datetime:
        """The store's time, by which jobs are due."""
        ...

    # Enqueue

    async def enqueue(self, jobs: Sequence[NewJob]) -> Mapping[UUID, UUID]:
        """Write all of these jobs, or none. Wakes idle workers after the commit.

        A job with a key that another job holds is not written; returns, by the new id, the job that holds it.
        Raises IdempotencyConflict, and writes nothing, when an idempotency key was used for something else.
        """
        ...

    # Workers

    async def register(self, worker: NewWorker) -> None:
        """Insert the worker's row. Checks the schema, as `open` does: a worker may come back after two upgrades."""
        ...

    async def deregister(self, worker: UUID) -> None:
        """Delete the worker's row; only a worker that holds no job may do it."""
        ...

    async def announce(self, types: Sequence[TypeRow]) -> None:
        """Write the job types and pipelines of a worker's program; the last announcement of a name counts."""
        ...

    async def types(self, *names: str) -> list[TypeRow]:
        """The announced types by name; with names, only these. A document that this version cannot read is left out."""
        ...

    def heartbeat(self) -> Heartbeat: ...

    async def set_idle(self, worker: UUID, *, idle: bool) -> None:
        """Commit the worker's idle mark: while it is set, an enqueue sends a wake-up."""
        ...

    def wakeups(self) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Wake-ups as they arrive: a queue's name, `*` for any, or a text of `messages.py`. A lost one costs a poll."""
        ...

    def wake_later(self, queues: set[str]) -> None:
        """Wake idle workers of these queues soon; the caller does not wait for it."""
        ...

    async def wake(self, message: str) -> None:
        """Send a wake-up to every worker that listens."""
        ...

    # One job, from claim to finish

    async def claim(self, claim: Claim) -> Claimed:
        """Lease up to `room` due jobs for a worker that is registered and not dead; none for any other."""
        ...

    async def held(self, worker: UUID, known: Collection[UUID] = ()) -> Held:
        """The running jobs of this worker without those in `known`: read after the answer to a claim was lost."""
        ...

    async def finish(self, transitions: Sequence[Transition]) -> Finished:
        """Write every transition with a current lease: finish, fail, snooze, release and the others.

        A job with a cancel request that would become claimable again becomes `cancelled` instead. Raises ValueRefused
        when a value of one of them cannot be stored, and another StoreError when the database is the reason or may be.
        """
        ...

    async def bury_unreadable(self, lease: Lease, reason: str) -> bool:
        """Bury a job with the smallest possible write. Its slots are released, and nothing else follows.

        It is for a job with a transition that cannot be written at all. False when the lease is lost.
        """
        ...

    async def record(self, progress: Sequence[Progress]) -> None:
        """Write progress under the leases that are current."""
        ...

    async def recall(self, job: UUID) -> Recollection:
        """The results of steps that earlier attempts of this job stored, and the signals sent to it."""
        ...

    async def links(self, job: UUID, *, page: int | None = None) -> list[Linked]:
        """The jobs that this one knows by name, with their states now; all of them, or the first of a page."""
        ...

    async def waits(self, jobs: Sequence[UUID]) -> dict[UUID, Waiting]:
        """What these jobs wait for, without those that do not wait."""
        ...

    async def find_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]: ...

    async def states(self, jobs: Sequence[UUID]) -> dict[UUID, JobState]:
        """The state, attempt and progress of these jobs, in one statement; jobs that do not exist are left out."""
        ...

    async def remember(self, lease: Lease, memory: Memory) -> bool:
        """Store a step's result under the lease, in a commit of its own; False when the lease is not current."""
        ...

    async def signal(self, job: UUID, name: str, payload: str, *, actor: str | None = None) -> bool:
        """Send a signal (JSON) to a job that has not ended, and wake it if it waits for it.

        The first signal of a name is stored, whether or not the job waits for it yet; False when there was one already.
        Raises JobNotFound or TransitionRefused.
        """
        ...

    async def cancel_requests(self, worker: UUID) -> list[UUID]:
        """Running jobs of this worker for which a cancel was requested."""
        ...

    async def finished_by(self, lease: Lease) -> bool:
        """Whether this lease finished its job: read after the answer to a commit was lost."""
        ...

    def transaction(self, *, limit: float) -> AbstractAsyncContextManager[Transaction]:
        """Begin one; it is rolled back at the end of the block unless committed, and after `limit` seconds."""
        ...

    # Sweeps and pruning

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

        With `blames` the crash is counted for each job. With `crash_counts` the interrupted attempt counts too, and a
        job is dead when it was the last one. If the first step took longer than `patience` seconds, the sweep ends
        after it and is `late`: the database had not answered, and workers may be silent because of that.
        """
        ...

    async def wake_due(self, *, page: int = 500) -> int:
        """Wake the waiting jobs at the end of their timers; returns how many."""
        ...

    async def lead(self, name: str, worker: UUID, lease: float) -> bool:
        """Take or keep the leadership `name` for `lease` seconds; False while another worker holds it."""
        ...

    async def prune(self, *, history: float, audit: float) -> None:
        """Prepare the next partitions, and drop rows older than `history` and `audit` seconds; for the leader only."""
        ...

    # Reads and operations

    async def find(self, job: UUID) -> Job | None: ...

    async def operate(self, verb: Verb, job: UUID, *, actor: str | None = None) -> State | None:
        """CANCEL, RETRY, REPLAY, RESUME or DISCARD one job; returns its state now, None after a discard.

        The audit names `actor`. CANCEL also cancels the jobs that this one created; a running job keeps running, with
        a cancel request in its row. Raises JobNotFound or TransitionRefused.
        """
        ...

    async def rerun(self, job: NewJob, *, discard: bool = False, actor: str | None = None) -> None:
        """Write a copy of the job `job.copied_from`; with `discard`, the old job is discarded in the same transaction.

        Raises JobNotFound or TransitionRefused, and writes nothing, when a job to discard is gone or not dead any more,
        and TransitionRefused when another job holds the copy's unique key.
        """
        ...

    async def counts(self) -> dict[State, int]:
        """Jobs by state, history included."""
        ...

    async def workers(self, *, processors: bool = False) -> list[WorkerRow]:
        """Each worker with a row; with `processors`, also what they do: a report of some kilobytes per worker."""
        ...

    async def search(
        self, filter: Filter, *, page: int = 50, below: UUID | None = None, tenant: str | None = None
    ) -> list[Job]:
        """Jobs that match, newest first; the next page begins below the last id of this one.

        With `tenant`, only jobs of that tenant, whatever the filter says.
        """
        ...

    async def search_ids(
        self, filter: Filter, *, page: int = 10_000, below: UUID | None = None, tenant: str | None = None
    ) -> list[FoundJob]:
        """As `search`, with what a bulk action needs of each job; a page has 10,000 at most."""
        ...

    async def audit(
        self,
        *,
        job: UUID | None = None,
        action: str | None = None,
        tenant: str | None = None,
        actor: str | None = None,
        page: int = 50,
        below: int | None = None,
    ) -> list[AuditRow]:
        """Rows of the audit, newest first; the next page begins below the last number of this one."""
        ...

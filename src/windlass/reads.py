"""What is in the store, for a program: `app.jobs("state:dead")`, `app.queues()`, `app.audit()`; awaited: `app.ajobs()`.

The command line prints what these functions return. Lists of jobs and of the audit come in pages: the next page begins
below the last row of this one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.blocking import blocking
from windlass.errors import FilterError, UnknownLimit
from windlass.handles.job import JobHandle
from windlass.model.admission import GateState
from windlass.model.job import Job, parse_id
from windlass.model.rows import JobDetails, JobRow, LimitUse, QueueRow
from windlass.model.state import State

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.client import Client
    from windlass.declare.registry import Registry
    from windlass.model.admission import BudgetRow, Gate, LimitRow, TenantRow
    from windlass.model.filter import Filter
    from windlass.model.flow import Recollection
    from windlass.model.rows import AuditRow, WaitReason, WorkerRow
    from windlass.model.schedule import ScheduleRow, TickRow
    from windlass.store.protocol import Store

PAGE = 50  # rows
LARGEST_PAGE = 1_000  # rows, as a store returns them at once
LISTED = 20  # links that `read_details` looks up
HOLDERS, WAITERS = 100, 10  # jobs at a limit


class Reads:
    """The methods of `Windlass` that only read."""

    _client: Client
    _registry: Registry
    _noun = "app"

    # Jobs

    async def ajobs(
        self, filter: str | Filter = "", *, count: int = PAGE, below: str | UUID | None = None
    ) -> list[JobRow]:
        """The jobs that match, newest first: `app.jobs("state:failed,dead queue:mail", count=100)`.

        The filter is the language of `windlass jobs list`; without one, all jobs are listed. A page has 1,000 rows at
        most. The next page begins below the last row: `app.jobs(filter, below=rows[-1].id)`. Each row is the job's
        record, with `row.retries`, and `row.why` is the reason for which it does not start. Raises FilterError.
        """
        wanted, size = parsed(filter), checked_count(count)
        last = None if below is None else parse_id(below)
        return await self._client.aask(lambda store: read_jobs(store, wanted, size, last, self._registry.label))

    async def afind(self, id: str | UUID) -> JobHandle[object]:
        """A handle for the job with this id: `app.find("0198…").status()`. Raises JobNotFound when there is none."""
        wanted = parse_id(id)
        record = await JobHandle[object](self._client, wanted).arecord()
        return JobHandle(self._client, wanted, self._registry.of(record))

    async def acounts(self) -> dict[State, int]:
        """The number of jobs in each state, history included: `app.counts()[State.DEAD]`."""
        return await self._client.aask(lambda store: store.counts())

    jobs = blocking(ajobs)
    find = blocking(afind)
    counts = blocking(acounts)

    # Queues and workers

    async def aqueues(self) -> list[QueueRow]:
        """Each queue with its jobs by state: `[row.queue for row in app.queues() if row.lag and not row.workers]`.

        `row.lag` is for how many seconds its oldest due job has waited, `row.workers` the number of live workers that
        serve it, and `row.gate` whether it is open, paused or draining.
        """
        return await self._client.aask(read_queues)

    async def aworkers(self) -> list[WorkerRow]:
        """Each worker with a row in the store: `[row.name for row in app.workers() if row.alive]`.

        `row.state` is busy, idle, silent (its lease has expired) or dead.
        """
        return await self._client.aask(lambda store: store.workers())

    queues = blocking(aqueues)
    workers = blocking(aworkers)

    # What may run

    async def agates(self) -> list[Gate]:
        """The gates that an operator has changed, closed ones first: `any(gate.is_closed for gate in app.gates())`.

        `gate.kind` is all, queue, type or tenant, and `gate.describe()` is a sentence with the actor and the reason.
        """
        return await self._client.aask(lambda store: store.gates())

    async def alimits(self, name: str | None = None) -> list[LimitRow]:
        """The keys of limits and rates in use, those with most waiting jobs first: `app.limits("domain")`.

        With a name, those of one limit or rate. A key is in use from the first claim on that needs it.
        """
        return await self._client.aask(lambda store: store.limits(*([] if name is None else [name])))

    async def alimit_use(self, key: str) -> LimitUse:
        """One key, the jobs that hold it, and the next ten jobs that wait: `app.limit_use("domain:example.org")`.

        Raises UnknownLimit for a key that is not in use.
        """
        return await self._client.aask(lambda store: read_limit_use(store, key))

    async def abudgets(self) -> list[BudgetRow]:
        """Each budget, with what was spent: `[row.name for row in app.budgets() if row.is_spent]`."""
        return await self._client.aask(lambda store: store.budgets())

    async def atenants(self) -> list[TenantRow]:
        """Each tenant with a weight, with jobs, or with costs in the last 24 hours.

        `{row.name: row.lag for row in app.tenants()}` is for how many seconds the oldest due job of each has waited.
        """
        return await self._client.aask(lambda store: store.tenants())

    gates = blocking(agates)
    limits = blocking(alimits)
    limit_use = blocking(alimit_use)
    budgets = blocking(abudgets)
    tenants = blocking(atenants)

    # Schedules

    async def aschedules(self, name: str | None = None) -> list[ScheduleRow]:
        """The schedules in the store by name: `[row.name for row in app.schedules() if row.late]`.

        `row.upcoming` are its next five ticks and `row.when` is its timing in plain words. Also schedules that other
        programs declare are listed; a schedule is there from the start of its first worker on.
        """
        return await self._client.aask(lambda store: read_schedules(store, name))

    async def aticks(self, name: str, *, count: int = PAGE) -> list[TickRow]:
        """What became of the last ticks of a schedule, newest first: `app.ticks("nightly", count=10)`.

        `tick.outcome` is fired, skipped, missed or by hand. Raises ScheduleNotFound.
        """
        size = checked_count(count)
        return await self._client.aask(lambda store: _read_ticks(store, name, size))

    schedules = blocking(aschedules)
    ticks = blocking(aticks)

    # The audit

    async def aaudit(
        self,
        *,
        job: str | UUID | None = None,
        action: str | None = None,
        count: int = PAGE,
        below: int | None = None,
    ) -> list[AuditRow]:
        """How jobs ended and what operators did, newest first: `app.audit(action="JOB_DEAD", count=100)`.

        With `job`, only rows about that job, also when it no longer exists. A page has 1,000 rows at most, and the next
        one begins below the last row: `app.audit(below=rows[-1].number)`.
        """
        id, size = None if job is None else parse_id(job), checked_count(count)
        name = None if action is None else action.upper()
        return await self._client.aask(lambda store: store.audit(job=id, action=name, page=size, below=below))

    audit = blocking(aaudit)


# Checks


def parsed(filter: str | Filter) -> Filter:
    from windlass.model.filter import Filter, parse

    if isinstance(filter, Filter):
        return filter
    if isinstance(filter, State) or not isinstance(filter, str):
        hint = f'; write: app.jobs("state:{filter.value}")' if isinstance(filter, State) else ""
        raise FilterError(f"a filter is text such as 'state:dead queue:mail', not {type(filter).__name__}{hint}")
    return parse(filter)


def checked_count(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= LARGEST_PAGE:
        raise FilterError(
            f"count={count!r}: give a whole number from 1 to {LARGEST_PAGE:,}; below= begins the next page"
        )
    return count


# What they ask the store


async def read_jobs(
    store: Store,
    filter: Filter,
    page: int,
    below: UUID | None,
    label: Callable[[Job], str | None],
) -> list[JobRow]:
    """A page of jobs. What keeps them from starting is read once for all of them."""
    from windlass.store.reasons import read_reasons

    jobs = await store.search(filter, page=page, below=below)
    reasons = await read_reasons(store, jobs)
    return [_row(job, label(job), next(iter(reasons[job.id]), None)) for job in map(without_token, jobs)]


def without_token(job: Job) -> Job:
    """A list may be shown to users, and with a token they could finish the attempt."""
    return msgspec.structs.replace(job, token=None)


def _row(job: Job, label: str | None, why: WaitReason | None) -> JobRow:
    values: list[Any] = [*msgspec.structs.astuple(job), label, why]
    return JobRow(*values)


async def read_details(store: Store, job: Job) -> JobDetails:
    """What the store holds about a job beside its own row."""
    from windlass.store.reasons import read_reasons

    links = await store.links(job.id)
    known = await store.find_many([link.id for link in links[:LISTED]]) if links else {}
    memory = await store.recall(job.id)
    return JobDetails(
        reasons=(await read_reasons(store, [job]))[job.id],
        waits=(await store.waits([job.id])).get(job.id) if job.status is State.WAITING else None,
        links=links,
        foreign=frozenset(id for id, other in known.items() if other.parent != job.id),
        steps=_list_steps(memory),
        signals=sorted(memory.signals),
        audit=await store.audit(job=job.id, page=LISTED + 1),
        workers={row.id: row.name for row in await store.workers()},
    )


def _list_steps(memory: Recollection) -> list[str]:
    """The program's names of steps, sleeps and signals with a timeout; the names that Windlass gives have a space."""
    return sorted(name for name in memory.steps if name == name.strip() and "/ " not in name)


async def read_queues(store: Store) -> list[QueueRow]:
    """The queues with their live workers and gates."""
    rows, workers = await store.queues(), await store.workers()
    closed = {(gate.kind.value, gate.name): gate.state for gate in await store.gates() if gate.is_closed}
    everything = closed.get(("all", ""), GateState.OPEN)
    return [
        msgspec.structs.replace(
            row,
            workers=sum(worker.serves_queue(row.queue) for worker in workers),
            gate=closed.get(("queue", row.queue), everything),
        )
        for row in rows
    ]


async def read_limit_use(store: Store, key: str) -> LimitUse:
    rows = [row for row in await store.limits(key) if row.key == key]
    if not rows:
        raise await unknown_key(store, key)
    return LimitUse(
        limit=rows[0],
        holders=[without_token(job) for job in await store.holders(key, page=HOLDERS)],
        waiters=[without_token(job) for job in await store.waiters(key, page=WAITERS)],
        workers={row.id: row.name for row in await store.workers()},
    )


async def unknown_key(store: Store, key: str) -> UnknownLimit:
    """The error for a key that is not in use: a key exists from the first claim or call that uses it."""
    known = [row.key for row in await store.limits()]
    close = difflib.get_close_matches(key, known, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else "; see the keys in use: windlass limits"
    return UnknownLimit(f"the key {key!r} is not in use: no job with it has been claimed{meant}")


async def read_schedules(store: Store, name: str | None = None) -> list[ScheduleRow]:
    """The schedules with their next ticks and their timing in words."""
    from windlass.policy.cron import describe, list_fires

    rows = await store.schedules(name)
    return [msgspec.structs.replace(row, when=describe(row.timing), upcoming=tuple(list_fires(row))) for row in rows]


async def _read_ticks(store: Store, name: str, page: int) -> list[TickRow]:
    from windlass.handles.schedule import find

    await find(store, name)
    return await store.ticks(name, page=page)

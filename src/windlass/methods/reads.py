"""What is in the store, for a program: `app.jobs("state:dead")`, `app.queues()`, `app.audit()`; awaited: `app.ajobs()`.

The command line prints what these functions return. Lists of jobs and of the audit come in pages: the next page begins
below the last row of this one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from windlass.blocking import blocking
from windlass.clock import seconds
from windlass.errors import FilterError, UnknownLimit
from windlass.handles.job import JobHandle
from windlass.methods.error_groups import ErrorReads
from windlass.methods.facets import FacetReads
from windlass.methods.overview import OverviewReads, read_idle_queues
from windlass.model.admission import GateState
from windlass.model.figures import SPAN
from windlass.model.job import Job, parse_id
from windlass.model.rows import JobRow, LimitUse, QueueRow
from windlass.model.state import State
from windlass.names import name_problem

if TYPE_CHECKING:
    from windlass.client import Client
    from windlass.config import Settings
    from windlass.declare.registry import Registry
    from windlass.handles.schedule import Schedule
    from windlass.model.admission import BudgetRow, Gate, LimitRow, TenantRow
    from windlass.model.figures import DepthRow, FigureRow, PhaseRow
    from windlass.model.filter import Filter
    from windlass.model.rows import AuditRow, JobState, WaitReason, WorkerRow
    from windlass.model.schedule import ScheduleRow, TickRow
    from windlass.store.protocol import Store

PAGE = 50  # rows
LARGEST_PAGE = 1_000  # rows, as a store returns them at once
HOLDERS, WAITERS = 100, 10  # jobs at a limit


class Reads(ErrorReads, OverviewReads, FacetReads):
    """The methods of `Windlass` that only read."""

    settings: Settings
    _client: Client
    _registry: Registry
    _noun = "app"

    # Jobs

    async def ajobs(
        self,
        filter: str | Filter = "",
        *,
        count: int = PAGE,
        below: str | UUID | None = None,
        tenant: str | None = None,
    ) -> list[JobRow]:
        """The jobs that match, newest first: `app.jobs("state:failed,dead queue:mail", count=100)`.

        The filter is the language of `windlass jobs list`; without one, all jobs are listed. A page has 1,000 rows at
        most. The next page begins below the last row: `app.jobs(filter, below=rows[-1].id)`. Each row is the job's
        record, with `row.retries`, and `row.why` is the reason for which it does not start. With `tenant=`, only jobs
        of that tenant are listed, whatever the filter says. Raises FilterError.
        """
        wanted, size, only = parsed(filter), checked_count(count), checked_tenant(tenant)
        last = None if below is None else parse_id(below)
        return await self._client.aask(lambda store: read_jobs(store, wanted, size, last, self._registry.label, only))

    async def afind(self, id: str | UUID) -> JobHandle[object]:
        """A handle for the job with this id: `app.find("0198…").status()`. Raises JobNotFound when there is none."""
        wanted = parse_id(id)
        record = await JobHandle[object](self._client, wanted).arecord()
        return JobHandle(self._client, wanted, self._registry.of(record))

    async def astates(self, ids: Iterable[str | UUID]) -> dict[UUID, JobState]:
        """How far up to 1,000 jobs are, in one statement: `app.states([job.id])[job.id].state`.

        For a program that waits for many jobs. An id without a job is left out of the answer. Raises FilterError for
        more ids.
        """
        wanted = checked_ids(ids)
        return await self._client.aask(lambda store: store.states(wanted)) if wanted else {}

    async def acounts(self) -> dict[State, int]:
        """The number of jobs in each state, history included: `app.counts()[State.DEAD]`.

        At most 10,000 jobs of a state are counted: 10,001 means that there are more.
        """
        return await self._client.aask(lambda store: store.counts())

    jobs = blocking(ajobs)
    find = blocking(afind)
    states = blocking(astates)
    counts = blocking(acounts)

    # Queues and workers

    async def aqueues(self, *, idle: bool = False) -> list[QueueRow]:
        """Each queue with its jobs by state: `[row.queue for row in app.queues() if row.lag and not row.workers]`.

        `row.due` are the jobs that could start now, `row.lag` is for how many seconds the oldest of them has waited,
        `row.workers` the number of live workers that serve it, and `row.gate` whether it is open, paused or draining.
        With `idle=True`, queues without jobs are listed, too, as far as workers or announced types name them. A number
        above `row.counted` means that there are more jobs; `row.counted` is 10,000 by the number of queues, ten
        at least.
        """
        return await self._client.aask(lambda store: read_queues(store, idle=idle))

    async def aworkers(self) -> list[WorkerRow]:
        """Each worker with a row in the store: `[row.name for row in app.workers() if row.alive]`.

        `row.state` is busy, idle, silent (its lease has expired) or dead. `row.processors` has what each of its
        processors did at its last beat, `row.in_memory` its jobs that have not started, by phase.
        """
        return await self._client.aask(lambda store: store.workers(processors=True))

    async def aphases(self, *, since: str | float = "10m") -> list[PhaseRow]:
        """Each phase of a pipeline, and each queue with jobs in no pipeline: `[row.busy for row in app.phases()]`.

        `row.due` are jobs in the database, `row.in_memory` jobs that wait in a worker, and `row.idle`, `row.busy` and
        `row.error` its processors. `row.run_p95`, `row.error_rate` and the other figures are those of the last 10
        minutes, or of `since`.
        """
        from windlass.methods.phases import read_phases

        back = max(float(SPAN), seconds(since))
        return await self._client.aask(lambda store: read_phases(store, back))

    async def afigures(
        self, *, since: str | float = "1h", step: str | float = "1m", queue: str | None = None
    ) -> list[FigureRow]:
        """What ended in each step of time, by queue and phase, oldest first: `app.figures(since="10m", step="10s")`.

        Each row counts attempts by their end, and has `row.run_p95` and `row.wait_p50` in seconds. Figures are
        kept as long as the history: by 10 s, by minutes after half an hour, and by 10 minutes after a day.
        """
        back, size = seconds(since), max(float(SPAN), seconds(step))
        return await self._client.aask(lambda store: store.figures(since=back, step=size, queue=queue))

    async def adepths(
        self, *, since: str | float = "1h", step: str | float = "10s", queue: str | None = None
    ) -> list[DepthRow]:
        """Samples of each queue's jobs by state, every 10 s, oldest first: `app.depths(since="10m", queue="mail")`.

        With a longer step, it is the last sample of each.
        """
        back, size = seconds(since), max(float(SPAN), seconds(step))
        return await self._client.aask(lambda store: store.depths(since=back, step=size, queue=queue))

    queues = blocking(aqueues)
    workers = blocking(aworkers)
    phases = blocking(aphases)
    figures = blocking(afigures)
    depths = blocking(adepths)

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

    async def afind_schedule(self, name: str) -> Schedule[object]:
        """A handle for the schedule of this name: `app.find_schedule("nightly").pause("year-end closing")`.

        Also for a schedule that another program declares. Raises ScheduleNotFound when there is none.
        """
        from windlass.handles.schedule import Schedule

        schedule = Schedule[object](self, name, self._registry.schedules.get(name))
        await schedule.arecord()
        return schedule

    async def aticks(self, name: str, *, count: int = PAGE) -> list[TickRow]:
        """What became of the last ticks of a schedule, newest first: `app.ticks("nightly", count=10)`.

        `tick.outcome` is fired, skipped, missed or by hand. Raises ScheduleNotFound.
        """
        size = checked_count(count)
        return await self._client.aask(lambda store: _read_ticks(store, name, size))

    schedules = blocking(aschedules)
    find_schedule = blocking(afind_schedule)
    ticks = blocking(aticks)

    # The audit

    async def aaudit(
        self,
        *,
        job: str | UUID | None = None,
        action: str | None = None,
        tenant: str | None = None,
        actor: str | None = None,
        count: int = PAGE,
        below: int | None = None,
    ) -> list[AuditRow]:
        """How jobs ended and what operators did, newest first: `app.audit(action="JOB_DEAD", count=100)`.

        With `job`, only rows about that job, also when it no longer exists; with `tenant`, those about its jobs; with
        `actor`, what that actor did. A page has 1,000 rows at most, and the next
        one begins below the last row: `app.audit(below=rows[-1].number)`.
        """
        id, size = None if job is None else parse_id(job), checked_count(count)
        name = None if action is None else action.upper()
        wanted = {"action": name, "tenant": tenant, "actor": actor}
        return await self._client.aask(lambda store: store.audit(job=id, **wanted, page=size, below=below))

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


def checked_ids(ids: Iterable[str | UUID]) -> list[UUID]:
    if isinstance(ids, (str, UUID)):
        raise FilterError(f"{str(ids)[:60]!r} is one id; write a list: app.states([id])")
    wanted = list(dict.fromkeys(map(parse_id, ids)))
    if len(wanted) > LARGEST_PAGE:
        raise FilterError(f"{len(wanted):,} ids at once; {LARGEST_PAGE:,} is the most: ask for them in pages")
    return wanted


def checked_tenant(tenant: str | None) -> str | None:
    problem = None if tenant is None else name_problem(tenant)
    if problem is not None:
        raise FilterError(f"tenant {problem}")
    return tenant


# What they ask the store


async def read_jobs(
    store: Store,
    filter: Filter,
    page: int,
    below: UUID | None,
    label: Callable[[Job], str | None],
    tenant: str | None = None,
) -> list[JobRow]:
    """A page of jobs. What keeps them from starting is read once for all of them."""
    from windlass.store.reasons import read_reasons

    jobs = await store.search(filter, page=page, below=below, tenant=tenant)
    reasons = await read_reasons(store, jobs)
    return [_row(job, label(job), next(iter(reasons[job.id]), None)) for job in map(without_token, jobs)]


def without_token(job: Job) -> Job:
    """A list may be shown to users, and with a token they could finish the attempt."""
    return msgspec.structs.replace(job, token=None)


def _row(job: Job, label: str | None, why: WaitReason | None) -> JobRow:
    values: list[Any] = [*msgspec.structs.astuple(job), label, why]
    return JobRow(*values)


async def read_queues(store: Store, *, idle: bool = False) -> list[QueueRow]:
    """The queues with their due jobs, live workers and gates."""
    rows, workers = await store.queues(), await store.workers()
    rows = [*rows, *(await read_idle_queues(store, rows, workers) if idle else ())]
    due = {row.queue: row for row in await store.count_due()}
    closed = {(gate.kind.value, gate.name): gate.state for gate in await store.gates() if gate.is_closed}
    everything = closed.get(("all", ""), GateState.OPEN)
    return [
        msgspec.structs.replace(
            row,
            workers=sum(worker.serves_queue(row.queue) for worker in workers),
            gate=closed.get(("queue", row.queue), everything),
            due=due[row.queue].due if row.queue in due else 0,
            counted=min(row.counted, due[row.queue].counted) if row.queue in due else row.counted,
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

"""An operator's verb for many jobs: `app.choose("replay", "queue:mail")` is the dry run, `app.bulk(…)` changes them.

The jobs are chosen first: the count is exact, and no other job is changed afterwards. Each job is changed by its own
conditional write; a job that has changed its state meanwhile is refused and counted. The command line uses the same
functions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from windlass.blocking import blocking
from windlass.config import suggest
from windlass.errors import FilterError, JobNotFound, TransitionRefused
from windlass.methods.admin import Operators
from windlass.methods.reads import checked_tenant, parsed
from windlass.model.rows import FoundJob
from windlass.model.state import State, Verb, sources
from windlass.store.parts.messages import cancel_message
from windlass.store.parts.refusals import OPERATIONS

if TYPE_CHECKING:
    from windlass.model.filter import Filter
    from windlass.model.job import Job
    from windlass.store.protocol import Store

CHOSEN_PAGE = 10_000  # ids per query
PAGE = 200  # jobs between two reports of progress
AT_ONCE = 4  # jobs that are changed at a time: the store has only a few connections
MOST_REFUSALS = 1_000  # that a report lists; `refused` counts all of them


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that a bulk action would change: a snapshot, made by `app.choose(verb, filter)`."""

    verb: Verb
    filter: str  # as it was used: narrowed to the states that allow the verb, unless it names a state
    tenant: str | None = None  # the scope within which the jobs were chosen
    jobs: tuple[FoundJob, ...] = ()

    @property
    def count(self) -> int:
        """How many jobs were chosen."""
        return len(self.jobs)

    def by_type(self) -> dict[str, int]:
        """The number of chosen jobs of each type, the largest first."""
        return dict(Counter(job.type for job in self.jobs).most_common())

    def by_state(self) -> dict[State, int]:
        """The number of chosen jobs in each state, the largest first."""
        return dict(Counter(job.status for job in self.jobs).most_common())


class BulkProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What a bulk action has done so far."""

    verb: Verb
    matched: int  # jobs that were chosen
    changed: int
    asked: int  # running jobs that were asked to cancel
    refused: int  # jobs with a state that no longer allowed it
    refusals: tuple[tuple[UUID, State | None], ...]  # the first 1,000 of them; None: the job is gone
    done: bool  # every chosen job was tried


class BulkOperators(Operators):
    """The methods of `Windlass` that change many jobs, beside all others of an operator."""

    async def achoose(self, verb: str | Verb, filter: str | Filter = "", *, tenant: str | None = None) -> Chosen:
        """The jobs that a bulk action would change, and nothing is changed: `app.choose("replay", "queue:mail").count`.

        Verbs are cancel, retry, replay, resume and discard. Unless the filter names a state, only jobs in a state that
        allows the verb are chosen. With `tenant=`, only jobs of that tenant, whatever the filter says. Pass the answer
        to `app.bulk(…)` to change exactly these jobs. Raises FilterError.
        """
        wanted, narrowed, only = checked_verb(verb), parsed(filter), checked_tenant(tenant)
        return await self._client.aask(lambda store: choose(store, wanted, narrowed, only))

    choose = blocking(achoose)

    def abulk(
        self, verb: str | Verb, chosen: Chosen | str | Filter, *, tenant: str | None = None
    ) -> AsyncIterator[BulkProgress]:
        """Change many jobs, with reports: `async for progress in app.abulk("replay", "queue:mail"): …`.

        `chosen` is the answer of `app.choose(…)`, or a filter, and then the jobs are chosen first. Jobs that are
        enqueued after the choice are not changed. Each job is changed by its own conditional write. There is a report
        after every 200 jobs; the last one is `done`. When the iterator is closed or its task cancelled, no further job
        is begun; what was changed stays changed. Raises FilterError.
        """
        # Checked, and the actor read, when it is called: the iterator may be used in another task.
        wanted, only, actor = checked_verb(verb), checked_tenant(tenant), self._actor
        if not isinstance(chosen, Chosen):
            return self._report(wanted, parsed(chosen), only, actor)
        if chosen.verb is not wanted:
            raise FilterError(
                f"these jobs were chosen for {chosen.verb}; choose again: app.choose({wanted.value!r}, …)"
            )
        if only is not None and chosen.tenant != only:
            raise FilterError(f"these jobs were chosen outside of tenant {only}; choose again: tenant={only!r}")
        return self._report(wanted, chosen, only, actor)

    def bulk(self, verb: str | Verb, chosen: Chosen | str | Filter, *, tenant: str | None = None) -> BulkProgress:
        """Change many jobs and wait for the end: `app.bulk("cancel", "queue:mail age:1h..").changed`.

        As `app.abulk(…)`, whose last report it returns.
        """

        async def finish() -> BulkProgress:
            async for progress in self.abulk(verb, chosen, tenant=tenant):
                last = progress
            return last

        return self._client.wait_for(finish, async_name="async for progress in app.abulk(…)")

    async def _report(
        self, verb: Verb, chosen: Chosen | Filter, tenant: str | None, actor: str
    ) -> AsyncIterator[BulkProgress]:
        if not isinstance(chosen, Chosen):
            filter = chosen
            chosen = await self._client.aask(lambda store: choose(store, verb, filter, tenant))
        change = BulkChange(chosen, actor)
        going = True
        while going:
            page = asyncio.ensure_future(self._client.aask(change.change_page))
            try:
                going = await asyncio.shield(page)
            except asyncio.CancelledError:
                change.stop()  # statements under way finish: a cancelled one may be written and not counted
                raise
            yield change.progress()


class BulkChange:
    """One verb on its way through the chosen jobs, a page at a time."""

    def __init__(self, chosen: Chosen, actor: str) -> None:
        self.chosen = chosen
        self.changed = 0
        self.asked = 0
        self.refused: list[tuple[UUID, State | None]] = []  # the state that was found; None: the job is gone
        self._actor = actor
        self._next = 0
        self._stopped = False

    @property
    def total(self) -> int:
        """How many jobs were tried."""
        return self.changed + self.asked + len(self.refused)

    def stop(self) -> None:
        """Begin no further job."""
        self._stopped = True

    def progress(self) -> BulkProgress:
        return BulkProgress(
            verb=self.chosen.verb,
            matched=self.chosen.count,
            changed=self.changed,
            asked=self.asked,
            refused=len(self.refused),
            refusals=tuple(self.refused[:MOST_REFUSALS]),
            done=self.total == self.chosen.count,
        )

    async def change_page(self, store: Store) -> bool:
        """Change the next page of jobs; False when it was the last one or the change was stopped."""
        page = iter(self.chosen.jobs[self._next : self._next + PAGE])
        self._next += PAGE
        due: set[str] = set()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):  # the tasks share the iterator
                    group.create_task(self._change_all(store, page, due))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors  # the user reads one error when the database went away
        for queue in due:
            await store.wake(queue)
        return self._next < self.chosen.count and not self._stopped

    async def _change_all(self, store: Store, page: Iterator[FoundJob], due: set[str]) -> None:
        for job in page:
            if self._stopped:
                return
            if await self._change(store, job) is State.QUEUED:
                due.add(job.queue)

    async def _change(self, store: Store, job: FoundJob) -> State | None:
        try:
            state = await store.operate(self.chosen.verb, job.id, actor=self._actor)
        except (JobNotFound, TransitionRefused):
            found = await store.find(job.id)
            if found is not None and self._was_cancelled_with_parent(job, found):
                self.changed += 1
            else:
                self.refused.append((job.id, None if found is None else found.status))
            return None
        if state is State.RUNNING:
            self.asked += 1
            await store.wake(cancel_message(job.id))
        else:
            self.changed += 1
        return state

    def _was_cancelled_with_parent(self, job: FoundJob, found: Job) -> bool:
        """Whether the job was cancelled together with its parent, which was chosen, too, and changed before it."""
        cancelled = self.chosen.verb is Verb.CANCEL and found.status is State.CANCELLED
        return cancelled and found.parent is not None and job.status is not State.CANCELLED


async def choose(
    store: Store,
    verb: Verb,
    filter: Filter,
    tenant: str | None = None,
    on_page: Callable[[int], None] = lambda count: None,
) -> Chosen:
    """The jobs that match; unless the filter names a state, only those in a state that allows the verb.

    `on_page` gets the number of jobs so far. A job that is enqueued meanwhile has a greater id than the page before:
    pages go down, so it is not chosen.
    """
    narrowed = filter if filter.asks("status") else narrow(filter, verb)
    jobs: list[FoundJob] = []
    while True:
        page = await store.search_ids(narrowed, page=CHOSEN_PAGE, below=jobs[-1].id if jobs else None, tenant=tenant)
        jobs += page
        on_page(len(jobs))
        if len(page) < CHOSEN_PAGE:
            return Chosen(verb=verb, filter=narrowed.text, tenant=tenant, jobs=tuple(jobs))


def narrow(filter: Filter, verb: Verb) -> Filter:
    """Only jobs in a state that allows the verb: all others would be refused."""
    from windlass.model.filter import Filter, parse

    allowed = parse(f"state:{','.join(sorted(states_for(verb)))}")
    return Filter(f"{filter.text} {allowed.text}".strip(), (*filter.terms, *allowed.terms))


def states_for(verb: Verb) -> set[State]:
    """The states of jobs that the verb changes; a running job is asked to cancel."""
    return {*sources(verb), *((State.RUNNING,) if verb is Verb.CANCEL else ())}


def checked_verb(verb: str | Verb) -> Verb:
    known = {each.value: each for each in OPERATIONS}
    if not isinstance(verb, str) or verb not in known:
        raise FilterError(f"{str(verb)[:60]!r} is no verb for jobs{suggest(str(verb)[:60], known)}")
    return known[verb]

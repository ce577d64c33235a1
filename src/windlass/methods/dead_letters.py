"""Dead letters, one view over dead jobs and the broker's dead-letter queue: `app.dead_letters()`, `app.replay_dead(…)`.

The store's row decides. A message in the broker's dead-letter queue is a view of a job, or no envelope at all: whatever
is done to it, the job is changed by its own conditional write first, and the message is removed afterwards. A process
that dies in between leaves a message whose job is not dead any more; replaying that delivers the job once more, and its
claim refuses a second delivery.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from windlass.blocking import blocking
from windlass.errors import BrokerError, EnvelopeError, FilterError, JobNotFound, TransitionRefused
from windlass.methods.broker import broker_url, open_broker
from windlass.methods.bulk import BulkChange, Chosen, choose, narrow
from windlass.methods.reads import PAGE, checked_count, checked_tenant, parsed
from windlass.model import audit
from windlass.model.delivery import OutboxRow
from windlass.model.job import Job, parse_id
from windlass.model.rows import DeadKind, DeadReport, DeadRow, DeadView, FoundJob
from windlass.model.state import State, Verb

if TYPE_CHECKING:
    from windlass.client import Client
    from windlass.config import Settings
    from windlass.model.filter import Filter
    from windlass.store.protocol import Store
    from windlass.transport.protocol import DeadLetter, JobDispatcher

LETTER = "letter:"  # before the id of a broker's message: no job's id begins with it
MOST_LETTERS = 1_000  # messages that are read at once: each may have 256 KiB
GONE, UNREADABLE = "gone", "unreadable"
UNKNOWN = datetime.min.replace(tzinfo=UTC)
CLAIMABLE = (State.QUEUED, State.FAILED)
REFUSALS = {
    UNREADABLE: "the message is no envelope, so that it names no job; discard it",
    GONE: "its job is gone: it was discarded, has left the history, or never existed; discard the letter",
    State.RUNNING: "a worker runs its job; discard the letter",
    State.WAITING: "its job waits for other jobs, a signal or a time; discard the letter",
    State.SUCCEEDED: "its job has succeeded; discard the letter",
    State.CANCELLED: "its job is cancelled; to bring it back: windlass jobs resume ID",
}
"""Why a letter cannot be replayed, by the state of its job."""


class DeadLetterCalls:
    """The methods of `Windlass` for dead letters."""

    settings: Settings
    _client: Client
    _noun = "app"

    async def adead_letters(
        self,
        filter: str | Filter = "",
        *,
        count: int = PAGE,
        kind: DeadKind | str | None = None,
        tenant: str | None = None,
    ) -> DeadView:
        """Dead jobs, and what the broker put aside: `[row.reason for row in app.dead_letters("queue:mail").rows]`.

        A filter and a tenant narrow dead jobs, and a message of the broker has neither: with one of them, only jobs are
        listed. Without, the jobs come first, newest first, and then the broker's messages, oldest first. A message that
        is a copy of a dead job is listed with `kind="letter"` only. Where the broker cannot be reached, `problem` says
        why, and the jobs are listed all the same.
        """
        wanted, size, only = parsed(filter), checked_count(count), checked_tenant(tenant)
        kinds = checked_kinds(kind)
        return await self._client.aask(lambda store: read_dead(store, self.settings, wanted, size, kinds, only))

    async def areplay_dead(
        self,
        filter: str | Filter | None = None,
        *,
        ids: Iterable[str | UUID] | None = None,
        dry_run: bool = False,
        tenant: str | None = None,
    ) -> DeadReport:
        """Start dead jobs over: `app.replay_dead("queue:mail")`, `app.replay_dead(ids=[row.id for row in rows])`.

        A filter chooses dead jobs; `ids` may name jobs and the broker's letters. A letter whose job is dead replays the
        job, one whose job can be claimed delivers it again, and any other is refused with its reason. The broker's
        copies of the jobs are removed. With `dry_run=True` nothing is changed. Raises FilterError.
        """
        return await self._change_dead(Verb.REPLAY, filter, ids, dry_run, tenant)

    async def adiscard_dead(
        self,
        filter: str | Filter | None = None,
        *,
        ids: Iterable[str | UUID] | None = None,
        dry_run: bool = False,
        tenant: str | None = None,
    ) -> DeadReport:
        """Remove dead jobs or letters for good: `app.discard_dead("queue:mail age:30d..", dry_run=True).matched`.

        As `app.replay_dead(…)`. A discarded letter leaves its job as it is.
        """
        return await self._change_dead(Verb.DISCARD, filter, ids, dry_run, tenant)

    dead_letters = blocking(adead_letters)
    replay_dead = blocking(areplay_dead)
    discard_dead = blocking(adiscard_dead)

    async def _change_dead(
        self,
        verb: Verb,
        filter: str | Filter | None,
        ids: Iterable[str | UUID] | None,
        dry_run: bool,
        tenant: str | None,
    ) -> DeadReport:
        if (filter is None) == (ids is None):
            raise FilterError(f'give a filter or ids: app.{verb}_dead("queue:mail"), app.{verb}_dead(ids=[…])')
        jobs, letters = split_ids(() if ids is None else ids)
        wanted, only, actor = None if filter is None else parsed(filter), checked_tenant(tenant), self.settings.acting
        if only is not None and letters:
            raise FilterError("a letter of the broker has no tenant; leave tenant= out")

        async def change(store: Store) -> DeadReport:
            if wanted is not None:
                chosen = await choose(store, verb, wanted, only)
            else:
                chosen = await choose_ids(store, verb, jobs, only)
            report = await change_jobs(store, self.settings, chosen, actor, dry_run=dry_run)
            missing = [(str(id), GONE) for id in jobs if id not in {job.id for job in chosen.jobs}]
            report = msgspec.structs.replace(report, refused=(*report.refused, *missing))
            if not letters:
                return report
            return _sum(report, await change_letters(store, self.settings, verb, letters, actor=actor, dry_run=dry_run))

        return await self._client.aask(change)


# What was asked for


def checked_kinds(kind: DeadKind | str | None) -> Collection[DeadKind]:
    if kind is None:
        return tuple(DeadKind)
    try:
        return (DeadKind(kind),)
    except ValueError:
        raise FilterError(f"kind={str(kind)[:60]!r}: a dead letter is a 'job' or a 'letter'") from None


def split_ids(ids: Iterable[str | UUID]) -> tuple[list[UUID], list[str]]:
    """The ids of jobs, and those of the broker's letters without their prefix."""
    if isinstance(ids, (str, UUID)):
        raise FilterError(f"{str(ids)[:60]!r} is one id; write a list: ids=[id]")
    given = list(dict.fromkeys(map(str, ids)))
    letters = [id.removeprefix(LETTER) for id in given if id.startswith(LETTER)]
    return [parse_id(id) for id in given if not id.startswith(LETTER)], letters


async def choose_ids(store: Store, verb: Verb, ids: Sequence[UUID], tenant: str | None) -> Chosen:
    """These jobs, those of other tenants left out."""
    found = await store.find_many(ids) if ids else {}
    jobs = [found[id] for id in ids if id in found and tenant in (None, found[id].tenant)]
    return Chosen(
        verb=verb,
        filter=" ".join(map(str, ids)),
        tenant=tenant,
        jobs=tuple(FoundJob(job.id, job.queue, job.type, job.status, job.followed) for job in jobs),
    )


# Read


async def read_dead(
    store: Store, settings: Settings, filter: Filter, count: int, kinds: Collection[DeadKind], tenant: str | None = None
) -> DeadView:
    rows: list[DeadRow] = []
    if DeadKind.JOB in kinds:
        jobs = await store.search(narrow(filter, Verb.REPLAY), page=count, tenant=tenant)
        rows += [_job_row(job) for job in jobs]
    if DeadKind.LETTER not in kinds or filter.terms or tenant is not None or settings.broker is None:
        return DeadView(rows=tuple(rows[:count]))
    try:
        async with open_broker(broker_url(settings)) as broker:
            letters = await read_letters(store, broker)
    except BrokerError as error:
        return DeadView(rows=tuple(rows[:count]), problem=str(error))
    own = [row for row in letters if DeadKind.JOB not in kinds or row.state != State.DEAD]
    return DeadView(rows=tuple([*rows, *own][:count]))


async def read_letters(store: Store, broker: JobDispatcher, most: int = MOST_LETTERS) -> list[DeadRow]:
    """The broker's dead letters with the states of their jobs, oldest first."""
    found = sorted(await broker.dead_letters(most), key=lambda letter: letter.at or UNKNOWN)
    letters = [(letter, *_read_envelope(letter)) for letter in found]
    jobs = await store.find_many([job for _, job, _ in letters if job is not None])
    return [_letter_row(letter, job, type, jobs) for letter, job, type in letters]


def _read_envelope(letter: DeadLetter) -> tuple[UUID | None, str | None]:
    from windlass.transport.envelope import decode

    try:
        header = decode(letter.payload).header
    except EnvelopeError:
        return None, None
    return header.job_id, header.type


def _letter_row(letter: DeadLetter, job: UUID | None, type: str | None, jobs: dict[UUID, Job]) -> DeadRow:
    found = None if job is None else jobs.get(job)
    return DeadRow(
        kind=DeadKind.LETTER,
        id=f"{LETTER}{letter.id}",
        reason=letter.reason,
        state=UNREADABLE if job is None else GONE if found is None else found.status.value,
        type=type if found is None else found.type,
        queue=letter.queue if found is None else found.queue,
        at=letter.at,
        job=job,
        payload=letter.payload.decode(errors="backslashreplace"),
    )


def _job_row(job: Job) -> DeadRow:
    failure = job.failure()
    return DeadRow(
        kind=DeadKind.JOB,
        id=str(job.id),
        reason=job.reason,
        error=None if failure is None else f"{failure.type}: {failure.message}",
        state=job.status.value,
        type=job.type,
        queue=job.queue,
        at=job.finished_at or job.updated_at,
        job=job.id,
    )


# Change jobs


async def change_jobs(
    store: Store, settings: Settings, chosen: Chosen, actor: str, *, dry_run: bool = False
) -> DeadReport:
    """Replay or discard dead jobs, and remove the broker's copies of them."""
    if dry_run or not chosen.jobs:
        return DeadReport(matched=chosen.count)
    change = BulkChange(chosen, actor)
    while await change.change_page(store):
        pass
    removed, problem = await remove_copies(store, settings, {job.id for job in chosen.jobs})
    refused = tuple((str(id), GONE if state is None else f"its state is {state}") for id, state in change.refused)
    return DeadReport(matched=chosen.count, changed=change.changed, removed=removed, refused=refused, problem=problem)


async def remove_copies(store: Store, settings: Settings, jobs: Collection[UUID]) -> tuple[int, str | None]:
    """Remove the broker's copies of these jobs, where they are not dead any more; how many, or why not.

    It is best effort: a copy that stays is a view of a job that is not dead, and `dead list` shows it as one. A job
    that died again meanwhile may lose its new copy here; its row in the store is what a replay reads.
    """
    if settings.broker is None or not jobs:
        return 0, None
    try:
        async with open_broker(broker_url(settings)) as broker:
            removed = 0
            while True:  # page by page: what is removed makes room for letters behind it
                letters = await read_letters(store, broker)
                count = await _remove(broker, [row for row in letters if row.job in jobs and row.state != State.DEAD])
                removed += count
                if not count:
                    return removed, None
    except BrokerError as error:
        return 0, str(error)


async def _remove(broker: JobDispatcher, rows: Sequence[DeadRow]) -> int:
    ids = [row.id.removeprefix(LETTER) for row in rows]
    return await broker.remove_dead_letters(ids) if ids else 0


# Change letters


async def change_letters(
    store: Store, settings: Settings, verb: Verb, ids: Collection[str] | None, *, actor: str, dry_run: bool = False
) -> DeadReport:
    """Replay or discard the broker's letters with these ids; None: all of them."""
    async with open_broker(broker_url(settings)) as broker:
        letters = await read_letters(store, broker)
        wanted = letters if ids is None else [row for row in letters if row.id.removeprefix(LETTER) in ids]
        known = {row.id.removeprefix(LETTER) for row in wanted}
        report = DeadReport(
            matched=len(wanted), refused=tuple((f"{LETTER}{id}", GONE) for id in ids or () if id not in known)
        )
        if dry_run:
            hopeless = [] if verb is Verb.DISCARD else [row for row in wanted if row.state in REFUSALS]
            return _sum(report, DeadReport(matched=0, refused=_refusals(hopeless)))
        if verb is Verb.DISCARD:
            return _sum(report, await _discard(store, broker, wanted, actor))
        return _sum(report, await _replay(store, broker, wanted, letters, actor))


async def _discard(store: Store, broker: JobDispatcher, rows: Sequence[DeadRow], actor: str) -> DeadReport:
    for (
        row
    ) in rows:  # before they are removed: a removal that no row of the audit names would be worse than the reverse
        named = f"; it named job {row.job}" if row.job else ""
        await store.record_action(audit.DEAD_LETTER_DISCARDED, actor, row.id, f"{row.reason}{named}")
    return DeadReport(matched=0, removed=await _remove(broker, rows))


async def _replay(
    store: Store, broker: JobDispatcher, rows: Sequence[DeadRow], letters: Sequence[DeadRow], actor: str
) -> DeadReport:
    changed, delivered, refused = 0, 0, list(_refusals([row for row in rows if row.state in REFUSALS]))
    done: set[UUID] = set()
    for row in rows:
        if row.job is None or row.state in REFUSALS or row.job in done:
            continue
        try:
            if row.state == State.DEAD:
                await store.operate(Verb.REPLAY, row.job, actor=actor)
                await store.wake(row.queue or "*")
                changed += 1
            else:
                await _deliver(store, broker, row.job)
                delivered += 1
        except (JobNotFound, TransitionRefused, BrokerError) as error:  # another operator or a worker was faster
            refused.append((row.id, str(error)))
            continue
        done.add(row.job)
        await store.record_action(audit.DEAD_LETTER_REPLAYED, actor, row.id, f"job {row.job}")
    report = DeadReport(matched=0, changed=changed, delivered=delivered, refused=tuple(refused))
    try:
        removed = await _remove(broker, [row for row in letters if row.job in done])
    except BrokerError as error:  # the jobs are replayed, and that is reported
        return msgspec.structs.replace(report, problem=str(error))
    return msgspec.structs.replace(report, removed=removed)


async def _deliver(store: Store, broker: JobDispatcher, id: UUID) -> None:
    """Publish an envelope of the job as it is now. A job that changed meanwhile refuses the delivery at its claim."""
    from windlass.transport.relay import message_of

    job = await store.find(id)
    if job is None:
        raise JobNotFound(f"there is no job {id} any more")
    row = OutboxRow.delivery_of(job, created_at=job.created_at, attempt=job.attempt + 1)
    await broker.dispatch([message_of(row)])


def _refusals(rows: Iterable[DeadRow]) -> tuple[tuple[str, str], ...]:
    return tuple((row.id, REFUSALS[row.state].replace("ID", str(row.job))) for row in rows)


def _sum(one: DeadReport, other: DeadReport) -> DeadReport:
    return DeadReport(
        matched=one.matched + other.matched,
        changed=one.changed + other.changed,
        delivered=one.delivered + other.delivered,
        removed=one.removed + other.removed,
        refused=(*one.refused, *other.refused),
        problem=one.problem or other.problem,
    )

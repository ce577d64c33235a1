"""Errors by group, for a program: `app.errors(since="1h")`; awaited: `app.aerrors()`. `windlass errors` prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from windlass.blocking import blocking
from windlass.clock import seconds
from windlass.errors import FilterError
from windlass.model.job import UNREADABLE, Failure, attempts_in
from windlass.model.reports.error_groups import POINTS, ErrorGroup, ErrorShare, ErrorText, FailedJob
from windlass.model.rows import COUNTED
from windlass.names import name_problem
from windlass.policy.fingerprint import fingerprint, pattern

if TYPE_CHECKING:
    from windlass.client import Client
    from windlass.store.protocol import Store

MOST_GROUPS = 50
MOST_SHARES = 5  # of queues, types, tenants and workers
SHORTEST_RANGE = 1.0  # seconds


class ErrorReads:
    """The method of `Windlass` that reads errors by group."""

    _client: Client
    _noun = "app"

    async def aerrors(
        self, since: str | float = "1h", *, queue: str | None = None, tenant: str | None = None
    ) -> list[ErrorGroup]:
        """The errors of the last hour by group, largest first: `[group.message for group in app.errors("10m")]`.

        Jobs with an error of the same type are a group if the first lines of their messages differ only in numbers,
        ids, times, quoted texts, addresses and paths. Each job is in the group of its last error, also when a later
        attempt succeeded. `app.jobs(f"fingerprint:{group.fingerprint}")` lists them. 50 groups at most are made of the
        10,000 newest failures; `group.more` says that there were older ones in the range.
        """
        back = max(SHORTEST_RANGE, seconds(since, what="since"))
        named = {"queue": queue, "tenant": tenant}
        for kind, name in named.items():
            problem = None if name is None else name_problem(name)
            if problem is not None:
                raise FilterError(f"{kind} {problem}")
        return await self._client.aask(lambda store: read_errors(store, back, **named))

    errors = blocking(aerrors)


async def read_errors(
    store: Store, since: float, *, queue: str | None = None, tenant: str | None = None
) -> list[ErrorGroup]:
    """The groups with their messages and the names of their workers."""
    failed = await store.errors(since=since, queue=queue, tenant=tenant)
    if not failed:
        return []
    more = len(failed) > COUNTED
    members: dict[str, list[FailedJob]] = {}
    for job in failed[:COUNTED]:
        members.setdefault(job.fingerprint, []).append(job)
    largest = sorted(members.values(), key=len, reverse=True)[:MOST_GROUPS]
    texts = await store.error_texts([jobs[0].id for jobs in largest])
    workers = {row.id: row.name for row in await store.workers()}
    return [_group(jobs, texts.get(jobs[0].id), workers, since, more=more) for jobs in largest]


def _group(
    jobs: Sequence[FailedJob], text: ErrorText | None, workers: Mapping[UUID, str], since: float, *, more: bool
) -> ErrorGroup:
    """A group of jobs, the newest failure first."""
    type, message = _describe(jobs[0].fingerprint, text)
    points = Counter(min(POINTS - 1, max(0, POINTS - 1 - int(POINTS * job.ago / since))) for job in jobs)
    return ErrorGroup(
        fingerprint=jobs[0].fingerprint,
        type=type,
        message=message,
        count=len(jobs),
        states=Counter(job.state for job in jobs),
        queues=_shares(job.queue for job in jobs),
        types=_shares(job.type for job in jobs),
        tenants=_shares(job.tenant for job in jobs),
        workers=_shares(workers.get(job.worker, str(job.worker)) for job in jobs if job.worker is not None),
        first=jobs[-1].at,
        last=jobs[0].at,
        points=tuple(points[place] for place in range(POINTS)),
        newest=jobs[0].id,
        more=more,
    )


def _shares(names: Iterable[str]) -> tuple[ErrorShare, ...]:
    return tuple(ErrorShare(name, count) for name, count in Counter(names).most_common(MOST_SHARES))


def _describe(group: str, text: ErrorText | None) -> tuple[str, str]:
    """The type and the pattern of the error. Since the read of the list the job may have been deleted, or it may have
    failed in another way.
    """
    known = [] if text is None else _failures(text)
    fitting = [failure for failure in known if fingerprint(failure.type, failure.message) == group]
    for failure in [*fitting, *known][:1]:
        return failure.type, pattern(failure.message)
    return UNREADABLE, ""


def _failures(text: ErrorText) -> list[Failure]:
    """The errors in the texts of a job, the last one first. An error that Windlass did not write is left out."""
    try:
        last = [] if text.error is None else [msgspec.json.decode(text.error, type=Failure)]
    except msgspec.MsgspecError:
        last = []
    return [*last, *(attempt.error for attempt in reversed(attempts_in(text.attempts)) if attempt.error is not None)]

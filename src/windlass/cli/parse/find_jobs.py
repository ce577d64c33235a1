"""From what somebody typed to the jobs that were meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from windlass.cli.show.output import print_note, print_text

if TYPE_CHECKING:
    from windlass.model.filter import Filter
    from windlass.model.job import Job
    from windlass.store.protocol import Store

PAGE = 1_000  # jobs per question to the store
ALTERNATIVES = 10  # jobs that an ambiguous id is explained with


async def search_jobs(store: Store, filter: Filter, limit: int, below: UUID | None = None) -> list[Job]:
    """So many jobs that match, newest first."""
    found: list[Job] = []
    while len(found) < limit:
        size = min(PAGE, limit - len(found))
        page = await store.search(filter, page=size, below=below)
        found += page
        if len(page) < size:
            break
        below = page[-1].id
    return found


async def for_each_page(store: Store, filter: Filter, use: Callable[[list[Job]], None]) -> None:
    """Every job that matches, without keeping them all."""
    below: UUID | None = None
    while page := await store.search(filter, page=PAGE, below=below):
        use(page)
        if len(page) < PAGE:
            return
        below = page[-1].id


async def find_jobs(store: Store, id: str) -> list[Job]:
    """The job with this id, or all whose ids begin or end so; raises JobNotFound."""
    from windlass.errors import JobNotFound
    from windlass.model.filter import parse, partial_id

    digits = partial_id(id)
    if digits is None:
        raise JobNotFound(f"{id[:60]!r} is not a job id: expected a UUID, or 6 or more digits of its beginning or end")
    found = await store.search(parse(digits), page=ALTERNATIVES)
    if not found:
        raise JobNotFound(f"there is no job {id}: it never was, was discarded, or its history has passed")
    return found


def print_ambiguous(id: str, found: Sequence[Job]) -> int:
    """Tell the jobs that an id may mean; the answer is the exit code."""
    most = " or more" if len(found) == ALTERNATIVES else ""
    print_note(f"{id} is the beginning or end of {len(found)}{most} ids; write more of it:")
    for job in found:
        print_text(f"  {job.id}  {job.type}  {job.status}", err=True)
    return 2

"""Finds the jobs that a filter or an id on the command line means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from windlass.cli.show.output import print_note, print_text

if TYPE_CHECKING:
    from windlass.model.filter import Filter
    from windlass.model.job import Job
    from windlass.store.protocol import Store

T = TypeVar("T")
K = TypeVar("K")

PAGE = 1_000  # rows per query
RECENT = 200  # jobs that are read for the names in use
MOST_SUGGESTED = 20  # names
ALTERNATIVES = 10  # jobs that are listed for an ambiguous id


async def read_pages(
    read_page: Callable[[int, K | None], Awaitable[Sequence[T]]], limit: int, below: K | None, key: Callable[[T], K]
) -> list[T]:
    """At most `limit` rows, page by page; each page begins below the key of the last row before it."""
    found: list[T] = []
    while len(found) < limit:
        size = min(PAGE, limit - len(found))
        page = await read_page(size, below)
        found += page
        if len(page) < size:
            break
        below = key(page[-1])
    return found


async def find_misspelt_names(store: Store, filter: Filter) -> list[str]:
    """A remark for each queue, type or tenant of a filter that no job and no worker names."""
    from windlass.cli.parse.gate_options import read_known_names
    from windlass.config import suggest
    from windlass.model.filter import parse

    remarks: list[str] = []
    recent = await store.search(parse(""), page=RECENT)
    for term in filter.terms:
        if term.column not in ("queue", "type", "tenant") or term.negated:
            continue
        known = await read_known_names(store, term.column) | {str(getattr(job, term.column)) for job in recent}
        for value in term.values:
            if len(value.pieces) == 1 and value.text not in known and known:
                meant = suggest(value.text, dict.fromkeys(sorted(known)[:MOST_SUGGESTED]))
                remarks.append(f"no recent job and no worker has the {term.column} {value.text!r}{meant}")
    return remarks


async def find_jobs(store: Store, id: str) -> list[Job]:
    """The job with this id, or all jobs with an id that begins or ends with it; raises JobNotFound."""
    from windlass.errors import JobNotFound
    from windlass.model.filter import parse, partial_id

    digits = partial_id(id)
    if digits is None:
        raise JobNotFound(
            f"{id[:60]!r} is not a job id: expected a UUID, or 6 or more digits of its beginning or end; "
            "windlass jobs lists them"
        )
    found = await store.search(parse(digits), page=ALTERNATIVES)
    if not found:
        raise JobNotFound(
            f"there is no job {id}: it never existed, was discarded, or has left the history; windlass jobs lists them"
        )
    return found


async def find_one(ctx: click.Context, store: Store, id: str) -> Job:
    """The job that an id means; an id that fits several jobs ends the command with a list of them."""
    found = await find_jobs(store, id)
    if len(found) > 1:
        most = " or more" if len(found) == ALTERNATIVES else ""
        print_note(f"{id} is the beginning or end of {len(found)}{most} ids; write more of it:")
        for job in found:
            print_text(f"  {job.id}  {job.type}  {job.status}", err=True)
        ctx.exit(2)
    return found[0]

"""The routes that stream: live lists, one job, and the progress of a bulk action."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import msgspec
from fastapi import Depends, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from windlass.documents import Document
from windlass.errors import JobNotFound, WindlassError
from windlass.methods.bulk import BulkProgress
from windlass.web.answers import answer, problem_of
from windlass.web.live.bulk import progress_document
from windlass.web.live.events import EventStream, disconnected, event
from windlass.web.live.feed import LiveList, Source
from windlass.web.routing import Entered, Visit, make_routes, problems
from windlass.web.schemas.base import SPAN
from windlass.web.schemas.pages import LiveLists

live_router = make_routes("live")

LastId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=500)]
STREAM: dict[str, Any] = {
    "description": "server-sent events",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}

encode = msgspec.json.Encoder().encode


class ListQuery(NamedTuple):
    """Which lists are asked for, and with what."""

    lists: set[Literal["overview", "figures", "jobs", "home", "bulk"]]
    filter: str
    range: str


async def asked_lists(
    lists: Annotated[set[Literal["overview", "figures", "jobs", "home", "bulk"]], Query(alias="list", min_length=1)],
    filter: Annotated[str, Query(max_length=2_000, description="of the list of jobs")] = "",
    range: Annotated[str, Query(min_length=2, max_length=32, pattern=SPAN, description="of the list `home`")] = "1h",
) -> ListQuery:
    return ListQuery(lists, filter, range)


Asked = Annotated[ListQuery, Depends(asked_lists)]


@live_router.get(
    "/stream", status_code=200, response_class=EventStream, responses={200: STREAM}, summary="Follow lists"
)
async def follow_lists(visit: Entered, asked: Asked, last_id: LastId = None) -> Response:
    """For each list a `snapshot` with its rows by key, then a `delta` with those that changed; null: the row has left.

    The server reads each list once per second for all listeners. Send the id of the last event as Last-Event-ID to
    resume. A stream ends after ten minutes: reconnect, as an EventSource does.
    """
    visit.feed.check_room()
    followed = await _join(visit, asked)
    return EventStream(visit.feed.follow(followed, last_id, visit.still_allowed))


@live_router.get("/lists", response_model=LiveLists, summary="Read lists")
async def read_lists(visit: Entered, asked: Asked) -> Response:
    """The lists of `GET /stream` as they are now, for a page without a stream; all readers share one read."""
    followed = await _join(visit, asked)
    return answer({"lists": {each.name: await each.snapshot() for each in followed}})


async def _join(visit: Visit, asked: ListQuery) -> list[LiveList]:
    service, caller = visit.service, visit.caller
    known: dict[str, Callable[[], Awaitable[Source]]] = {
        "overview": lambda: service.live_overview(caller),
        "figures": lambda: service.live_figures(caller),
        "home": lambda: service.live_home(caller, asked.range),
        "jobs": lambda: service.live_jobs(caller, asked.filter),
        "bulk": lambda: service.live_bulk(caller),
    }
    sources = [await begin() for name, begin in known.items() if name in asked.lists]
    return [visit.feed.join(source) for source in sources]


@live_router.get(
    "/jobs/{id:uuid}/events",
    status_code=200,
    response_class=EventStream,
    responses={200: STREAM, **problems(404)},
    summary="Follow a job",
)
async def follow_job(id: UUID, visit: Entered) -> Response:
    """A `job` event with the whole job now and at each change; at its end a `result` event, and the stream closes."""
    visit.feed.check_room()
    await visit.service.job(visit.caller, id)  # 404 before the stream begins
    return EventStream(_job_events(id, visit))


async def _job_events(id: UUID, visit: Visit) -> AsyncIterator[bytes]:
    sent: Document | None = None
    with visit.service.awaited.watch(id) as watched:
        async for _ in visit.feed.turns(lambda: [watched.changed], visit.still_allowed):
            try:
                # The result first: a job that ends between two reads would send its state before the end as the last.
                result = await visit.service.result(visit.caller, id, 0)
                job = await visit.service.job(visit.caller, id)
                events = event("job", encode(job)) if job != sent else event(None, b"")
            except JobNotFound:  # it was discarded meanwhile
                yield event("gone", encode({"id": id}))
                return
            except WindlassError as error:
                yield event("problem", encode(problem_of(error)))
                continue
            if result["ended"]:
                yield events + event("result", encode(result))
                return
            sent = job
            yield events


class BulkEvents:
    """A bulk action on its way, as events or as one answer at its end."""

    def __init__(self, start: Document, progress: AsyncIterator[BulkProgress]) -> None:
        self._start = start
        self._progress = progress

    async def events(self) -> AsyncIterator[bytes]:
        try:
            async with contextlib.aclosing(self._progress) as reports:  # type: ignore[type-var]
                async for report in reports:
                    yield event("progress", encode(self._document(report)))
        except WindlassError as error:
            yield event("problem", encode(problem_of(error)))

    async def finish(self, request: Request) -> Document:
        """The last report. A caller that has gone stops the action after the page that is under way."""
        gone = asyncio.ensure_future(disconnected(request.receive))
        document = self._start | {"done": True}
        try:
            async with contextlib.aclosing(self._progress) as reports:  # type: ignore[type-var]
                async for report in reports:
                    document = self._document(report)
                    if gone.done():
                        break
        finally:
            gone.cancel()
        return document

    def _document(self, report: BulkProgress) -> Document:
        return self._start | progress_document(report.matched, report) | {"done": report.done}

"""The routes of bulk actions that run on the server: begin, look, stop."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Path
from starlette.responses import Response

from windlass.web.answers import answer
from windlass.web.routing import WITH_BODY, Entered, make_routes, problems
from windlass.web.schemas import jobs as schemas

bulk_router = make_routes("bulk")

Id = Annotated[UUID, Path(description="the id of a bulk action")]


@bulk_router.post(
    "/bulk",
    status_code=202,
    response_model=schemas.BulkActionDetails,
    responses=problems(409, *WITH_BODY),
    summary="Begin a bulk action",
)
async def start_bulk(body: schemas.BulkStart, visit: Entered) -> Response:
    """Changes exactly the jobs that match now, each by its own conditional write, also when the caller has gone.

    Count them first, with `dry_run` of `POST /jobs/bulk`. The action lives in the memory of this server: a restart ends
    it, and the audit has what was changed.
    """
    return answer(await visit.service.start_bulk(visit.caller, body.verb, body.filter, body.expected), 202)


@bulk_router.get("/bulk", response_model=schemas.BulkActionList, summary="List bulk actions")
async def read_bulk_actions(visit: Entered) -> Response:
    """Those of this server that run, and those that ended last, the oldest first."""
    return answer(await visit.service.bulk_actions(visit.caller))


@bulk_router.get(
    "/bulk/{id:uuid}",
    response_model=schemas.BulkActionDetails,
    responses=problems(404),
    summary="Read a bulk action",
)
async def read_bulk_action(id: Id, visit: Entered) -> Response:
    """How far it is, with the first 1,000 jobs that refused it."""
    return answer(await visit.service.bulk_action(visit.caller, id))


@bulk_router.post(
    "/bulk/{id:uuid}/stop",
    response_model=schemas.BulkActionDetails,
    responses=problems(404),
    summary="Stop a bulk action",
)
async def stop_bulk(id: Id, visit: Entered) -> Response:
    """It stops after the page of 200 jobs that is under way; what was changed stays changed."""
    return answer(await visit.service.stop_bulk(visit.caller, id))

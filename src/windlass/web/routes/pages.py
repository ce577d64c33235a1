"""The routes that are made for a page: health, overview, facets, suggestions, error groups, phases and stories."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Path, Query
from starlette.responses import Response

from windlass.web.answers import answer
from windlass.web.routes.parameters import MaybeName, Since
from windlass.web.routing import WITH_BODY, Entered, make_routes, problems
from windlass.web.schemas import pages as schemas
from windlass.web.schemas.base import SPAN

pages_api = make_routes("pages")

Filter = Annotated[str, Query(max_length=2_000, description="as in `windlass jobs list`: queue:mail state:dead")]
Range = Annotated[str, Query(min_length=2, max_length=32, pattern=SPAN, description="from 1m to 31d")]
Id = Annotated[UUID, Path(description="the id of a job")]


@pages_api.get("/health", response_model=schemas.HealthDocument, summary="Read whether all is well")
async def read_health(visit: Entered) -> Response:
    """One sentence, what it rests on, what else needs a look, and the commands that help."""
    return answer(await visit.service.health(visit.caller))


@pages_api.get("/overview", response_model=schemas.OverviewDocument, summary="Read an overview")
async def read_overview(visit: Entered, range: Range = "1h") -> Response:
    """The health, six figures of a range and of the range before, a series for charts, queues, and what changed."""
    return answer(await visit.service.overview(visit.caller, range))


@pages_api.get("/facets", response_model=schemas.FacetsDocument, summary="Count jobs by their values")
async def read_facets(visit: Entered, filter: Filter = "") -> Response:
    """How many jobs that match have each state, queue, type and tenant."""
    return answer(await visit.service.facets(visit.caller, filter))


@pages_api.get("/suggestions", response_model=schemas.Suggestions, summary="Complete a filter")
async def read_suggestions(
    visit: Entered, text: Filter = "", cursor: Annotated[int | None, Query(ge=0, le=2_000)] = None
) -> Response:
    """What could stand at the cursor: keys with a word of help, values with their counts, or what is wrong."""
    return answer(await visit.service.suggestions(visit.caller, text, len(text) if cursor is None else cursor))


@pages_api.get("/errors", response_model=schemas.ErrorGroups, summary="List groups of errors")
async def read_errors(visit: Entered, since: Since = "1h", queue: MaybeName = None) -> Response:
    """Jobs that failed in the same way are one group. `fingerprint:…` in a filter finds its jobs."""
    return answer(await visit.service.errors(visit.caller, since, queue))


@pages_api.get("/phases", response_model=schemas.Phases, summary="List phases")
async def read_phases(visit: Entered, since: Since = "10m") -> Response:
    """The phases of pipelines, with their jobs in the database and in memory, their processors and their figures."""
    return answer(await visit.service.phases(visit.caller, since))


@pages_api.get(
    "/jobs/{id:uuid}/story", response_model=schemas.StoryDocument, responses=problems(404), summary="Read its story"
)
async def read_story(id: Id, visit: Entered) -> Response:
    """What happened to a job in words, where its time went, what is next, and the jobs around it as a graph."""
    return answer(await visit.service.story(visit.caller, id))


@pages_api.post(
    "/jobs/{id:uuid}/dry-run", response_model=schemas.Checks, responses=problems(404, *WITH_BODY), summary="Dry run"
)
async def dry_run(id: Id, body: schemas.DryRunBody, visit: Entered) -> Response:
    """What a replay with this input would meet: whether it fits, and what would keep it waiting. Nothing is written."""
    return answer(await visit.service.dry_run(visit.caller, id, body.input))

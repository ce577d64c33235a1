"""The routes of schedules."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.responses import Response

from windlass.methods.reads import PAGE
from windlass.web.answers import answer
from windlass.web.routes.parameters import Count, Name
from windlass.web.routing import WITH_BODY, Entered, job_url, make_routes, problems
from windlass.web.schemas import schedules as schemas
from windlass.web.schemas.base import Changes

MISSING = problems(404, *WITH_BODY)

schedules_router = make_routes("schedules")


@schedules_router.get("/schedules", response_model=schemas.Schedules, summary="List schedules")
async def read_schedules(visit: Entered, ticks: bool = False) -> Response:
    """Each schedule with its timing in words and its next ticks; with `ticks`, those of the last and next 24 hours."""
    return answer(await visit.service.schedules(visit.caller, ticks=ticks))


@schedules_router.get("/schedules/ticks", response_model=schemas.Ticks, responses=problems(404), summary="Read ticks")
async def read_ticks(visit: Entered, name: Name, count: Count = PAGE) -> Response:
    """What became of the last ticks of a schedule, newest first."""
    return answer(await visit.service.ticks(visit.caller, name, count))


@schedules_router.post("/schedules/pause", response_model=Changes, responses=MISSING, summary="Pause a schedule")
async def pause_schedule(body: schemas.PauseScheduleBody, visit: Entered) -> Response:
    """It enqueues nothing until it is resumed."""
    return answer(await visit.service.pause_schedule(visit.caller, body.name, body.reason))


@schedules_router.post("/schedules/resume", response_model=Changes, responses=MISSING, summary="Resume one")
async def resume_schedule(body: schemas.ScheduleBody, visit: Entered) -> Response:
    """Ends a pause."""
    return answer(await visit.service.resume_schedule(visit.caller, body.name))


@schedules_router.post("/schedules/edit", response_model=Changes, responses=MISSING, summary="Edit a schedule")
async def edit_schedule(body: schemas.EditBody, visit: Entered) -> Response:
    """Overrides what the program declares, until it is reset. A field that is left out stays."""
    change: dict[str, Any] = body.model_dump(exclude={"name"}, exclude_none=True)
    return answer(await visit.service.edit_schedule(visit.caller, body.name, change))


@schedules_router.post("/schedules/reset", response_model=Changes, responses=MISSING, summary="Undo edits")
async def reset_schedule(body: schemas.ScheduleBody, visit: Entered) -> Response:
    """The schedule is what the program declares again."""
    return answer(await visit.service.reset_schedule(visit.caller, body.name))


@schedules_router.post(
    "/schedules/fire", status_code=202, response_model=schemas.Fired, responses=MISSING, summary="Run a schedule now"
)
async def fire_schedule(body: schemas.ScheduleBody, visit: Entered, request: Request) -> Response:
    """Enqueues its job now, beside its ticks."""
    fired = await visit.service.fire_schedule(visit.caller, body.name)
    url = job_url(request, fired["id"])
    return answer({**fired, "url": url}, 202, {"location": url})


@schedules_router.post("/schedules/forget", response_model=Changes, responses=MISSING, summary="Delete one")
async def forget_schedule(body: schemas.ForgetBody, visit: Entered) -> Response:
    """Deletes a schedule that no program declares any more; `force` also one that may still be declared."""
    return answer(await visit.service.forget_schedule(visit.caller, body.name, force=body.force))

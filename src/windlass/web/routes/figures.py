"""The routes that read counts, queues, workers, types, the audit, and what ended over time."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Query
from starlette.responses import Response

from windlass.methods.reads import PAGE
from windlass.web.answers import answer
from windlass.web.routes.parameters import Count, MaybeName, Since, Step
from windlass.web.routing import Entered, make_routes
from windlass.web.schemas import figures as schemas
from windlass.web.schemas.jobs import AuditPage

figures_router = make_routes("figures")


@figures_router.get("/counts", response_model=schemas.CountsDocument, summary="Count jobs by state")
async def read_counts(visit: Entered) -> Response:
    """A number above `counted` means: there are more than `counted`."""
    return answer(await visit.service.counts(visit.caller))


@figures_router.get("/queues", response_model=schemas.Queues, summary="List queues")
async def read_queues(visit: Entered) -> Response:
    """Each queue with its jobs by state, its lag, its live workers and its gate."""
    return answer(await visit.service.queues(visit.caller))


@figures_router.get("/figures", response_model=schemas.Figures, summary="Read what ended over time")
async def read_figures(
    visit: Entered,
    since: Since = "1h",
    step: Step = "1m",
    queue: MaybeName = None,
) -> Response:
    """How many attempts ended in each way per step, queue and phase, and how long they ran and had waited.

    An answer has at most 1,000 steps: a shorter step becomes longer.
    """
    return answer(await visit.service.figures(visit.caller, since, step, queue))


@figures_router.get("/depths", response_model=schemas.Depths, summary="Read the depths of queues over time")
async def read_depths(visit: Entered, since: Since = "1h", queue: MaybeName = None) -> Response:
    """Samples of the queues' jobs by state, every 10 s, for six hours back at most."""
    return answer(await visit.service.depths(visit.caller, since, queue))


@figures_router.get("/workers", response_model=schemas.Workers, summary="List workers")
async def read_workers(visit: Entered) -> Response:
    """The workers with a row, and whether they are alive."""
    return answer(await visit.service.workers(visit.caller))


@figures_router.get("/types", response_model=schemas.Types, summary="List job types")
async def read_types(visit: Entered) -> Response:
    """The types of this program and those that workers announced, each with the JSON Schema of its input."""
    return answer(await visit.service.types(visit.caller))


@figures_router.get("/audit", response_model=AuditPage, summary="Read the audit")
async def read_audit(
    visit: Entered,
    job: UUID | None = None,
    action: MaybeName = None,
    actor: MaybeName = None,
    tenant: MaybeName = None,
    count: Count = PAGE,
    below: Annotated[int | None, Query(ge=0, lt=2**63, description="the `next` of the page before")] = None,
) -> Response:
    """How jobs ended, and who changed what, newest first."""
    page = await visit.service.audit(
        visit.caller, job=job, action=action, actor=actor, tenant=tenant, count=count, below=below
    )
    return answer(page)

"""The way of a request: the guard, the caller, the service, and the answer, in every program that has the routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from windlass.errors import ConfigError, WindlassError
from windlass.web.answers import PROBLEM, answer_error
from windlass.web.caller import Caller
from windlass.web.guard import check_json, check_origin, limit_body
from windlass.web.live.feed import Allowed, Feed
from windlass.web.schemas.base import Problem
from windlass.web.service.jobs import ApiService

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Authenticate = Callable[..., Any]
"""A dependency of FastAPI that returns a Caller, or raises."""
Recheck = Callable[[Request, Caller], Awaitable[bool]]
"""Whether the caller of an open stream would be let in again."""


class Visit(msgspec.Struct, frozen=True):
    """What a route needs: the service that it calls, the caller, and the feed of live events."""

    service: ApiService
    feed: Feed
    caller: Caller
    still_allowed: Allowed  # asked while a stream is open


class GuardedRoute(APIRoute):
    """A route that checks origin and body first, and answers every error of Windlass with a problem document."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                check_origin(request)
                if self.body_field is not None:
                    check_json(request)
                return await handle(limit_body(request))
            except (WindlassError, RequestValidationError, HTTPException) as error:
                return answer_error(error)

        return guarded


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The statuses of errors that a route can answer, for the OpenAPI document."""
    content = {PROBLEM: {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}}
    return {code: {"model": Problem, "description": REASONS[code], "content": content} for code in codes}


REASONS = {
    401: "no token, or one that is unknown, revoked or expired",
    403: "the role or the tenant of the token does not allow it, or another site's page sent it",
    404: "there is none, or it is another tenant's",
    408: "the body took too long to arrive",
    409: "the state of the job does not allow it, or the key was used for something else",
    413: "the body is too large",
    415: "the body is compressed, or is not sent as application/json",
    422: "the input is wrong; `path` names the place",
    503: "the database does not answer, or the read took too long; Retry-After says when to try again",
}
ALWAYS = (401, 403, 422, 503)
WITH_BODY = (408, 413, 415)


def make_routes(tag: str) -> APIRouter:
    """A router for one subject."""
    return APIRouter(route_class=GuardedRoute, tags=[tag], responses=problems(*ALWAYS))


def bind(
    service: ApiService, feed: Feed, authenticate: Authenticate, recheck: Recheck
) -> Callable[..., Coroutine[Any, Any, None]]:
    """The dependency that runs before each route: it finds the caller, and gives the route what it needs."""

    async def enter(request: Request, caller: Caller = Depends(authenticate)) -> None:  # noqa: B008
        if not isinstance(caller, Caller):
            raise ConfigError(f"caller= returned {type(caller).__name__}; it returns a windlass.web.Caller, or raises")
        request.state.windlass_visit = Visit(service, feed, caller, lambda: recheck(request, caller))

    return enter


def job_url(request: Request, id: UUID) -> str:
    """The path of a job, under whatever path the routes are mounted: `/api/v1/jobs/0198…`."""
    path = request.url.path
    mounted = max(path.rfind("/jobs"), path.rfind("/schedules"))
    return f"{path[:mounted]}/jobs/{id}"


async def visit(request: Request) -> Visit | None:
    """What `enter` prepared; None where it did not run, because a parameter is wrong: then the route does not run."""
    return getattr(request.state, "windlass_visit", None)


Entered = Annotated[Visit, Depends(visit)]

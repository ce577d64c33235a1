"""The HTTP API as a program (`make_api`), and as a router for a program with its own authentication (`make_router`)."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from windlass.errors import TokenRefused
from windlass.web.answers import answer, answer_error
from windlass.web.auth import COOKIE, Doors
from windlass.web.caller import Caller
from windlass.web.guard import HostCheck
from windlass.web.live.feed import Feed
from windlass.web.pages import page, pages_router
from windlass.web.routes.access import access_router
from windlass.web.routes.bulk import bulk_router
from windlass.web.routes.control import control_router
from windlass.web.routes.figures import figures_router
from windlass.web.routes.jobs import jobs_router
from windlass.web.routes.letters import letters_router
from windlass.web.routes.live import live_router
from windlass.web.routes.pages import pages_api
from windlass.web.routes.schedules import schedules_router
from windlass.web.routing import WITH_BODY, Authenticate, GuardedRoute, Recheck, bind, make_routes, problems
from windlass.web.schemas.access import SessionBody, SessionDocument
from windlass.web.service.jobs import ApiService

if TYPE_CHECKING:
    from windlass.app import Windlass

PREFIX = "/api/v1"
ANY_ID = "[0-9a-fA-F-]{32,36}"
ROUTERS = (
    jobs_router,
    bulk_router,
    live_router,
    pages_api,
    figures_router,
    letters_router,
    control_router,
    schedules_router,
    access_router,
)


def make_router(app: Windlass, *, caller: Authenticate) -> APIRouter:
    """The routes for a program with its own authentication: `api.include_router(make_router(app, caller=user))`.

    `caller` is a dependency of FastAPI that returns a `Caller`, or raises: it may have dependencies of its own. An open
    stream asks it once; streams end after ten minutes, and the reconnect asks again.
    """
    return _routes(ApiService(app), Feed(), caller, _always)


def make_api(
    app: Windlass, *, hosts: Collection[str] | None = None, local: bool = False, secure: bool = False
) -> FastAPI:
    """The API as an ASGI program, to serve or to mount: `main.mount("/windlass", make_api(app))`.

    Its routes begin with `/api/v1`. Each request needs a token of `windlass token create`. With `hosts`, other names
    than these and the loopback ones in the Host header are refused. `local` lets requests of this machine in without a
    token as long as there is none: it is for a server that listens on a loopback address only, and needs `hosts`.
    `secure` marks the cookie of a session `Secure`: users reach the server by https, through a proxy.
    """
    if local and hosts is None:
        hosts = ()  # without tokens, a page of another site could point its own name here
    doors, feed = Doors(app, local=local), Feed()
    api = FastAPI(
        title="Windlass",
        version=version("windlass"),
        description="Durable background jobs. Errors are problem documents (RFC 9457).",
        lifespan=app.lifespan,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # they load scripts of another site
        redoc_url=None,
        separate_input_output_schemas=False,
        generate_unique_id_function=lambda route: route.name,  # the names of functions in a generated client
    )
    service = ApiService(app)
    service.after_revoke = doors.forget
    api.state.windlass_feed, api.state.windlass_bulk = feed, service.actions
    api.include_router(_session_routes(doors, service, secure=secure), prefix=PREFIX)
    api.include_router(_routes(service, feed, doors.identify, doors.still_allows), prefix=PREFIX)
    api.include_router(_probe_routes(doors, service))
    api.include_router(pages_router)
    for kind in (HTTPException, Exception):
        api.add_exception_handler(kind, _answer_error)
    if hosts is not None:
        api.add_middleware(HostCheck, hosts=hosts)
    return api


def _routes(service: ApiService, feed: Feed, caller: Authenticate, recheck: Recheck) -> APIRouter:
    routes = APIRouter(dependencies=[Depends(bind(service, feed, caller, recheck))])
    for each in ROUTERS:
        routes.include_router(each)
    return routes


def _session_routes(doors: Doors, service: ApiService, *, secure: bool) -> APIRouter:
    routes = make_routes("access")

    @routes.post("/session", response_model=SessionDocument, responses=problems(*WITH_BODY), summary="Begin a session")
    async def begin_session(body: SessionBody, request: Request) -> Response:
        """Trades a token for a cookie that scripts cannot read, and that the browser sends to this site only."""
        caller = await doors.find(body.token)
        if caller is None:
            raise TokenRefused("the token is unknown, revoked or expired; list tokens: windlass token list")
        begun = answer(await service.session(caller))
        https = secure or request.url.scheme == "https"
        begun.set_cookie(COOKIE, body.token, path=_own_path(request), httponly=True, samesite="strict", secure=https)
        return begun

    @routes.delete("/session", status_code=204, summary="End a session")
    async def end_session(request: Request) -> Response:
        """Removes the cookie of this path, and that of the whole host."""
        ended = Response(status_code=204)
        # At "/" too: a browser that was here before there was a prefix sends that one, and would stay signed in.
        for path in {_own_path(request), "/"}:
            ended.delete_cookie(COOKIE, path=path, httponly=True, samesite="strict")
        return ended

    return routes


def _own_path(request: Request) -> str:
    """The path below which the cookie is sent: other programs of the same host do not get the token."""
    return quote(request.scope.get("root_path", "")) or "/"


def _probe_routes(doors: Doors, service: ApiService) -> APIRouter:
    """For Prometheus and for an orchestrator, at the addresses that they expect. Only `/metrics` needs a token."""
    routes = APIRouter(route_class=GuardedRoute, include_in_schema=False)

    @routes.get("/metrics")
    async def read_metrics(request: Request, caller: Caller = Depends(doors.identify)) -> Response:  # noqa: B008
        kind, text = await service.metrics(caller, request.headers.get("accept", ""))
        return Response(text, media_type=kind)

    @routes.get("/healthz")
    async def read_liveness() -> Response:
        return Response("ok\n", media_type="text/plain")

    @routes.get("/readyz")
    async def read_readiness() -> Response:
        why = await service.scrapes.explain_unready()
        return Response("ready\n" if why is None else f"not ready: {why}\n", 200 if why is None else 503)

    return routes


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == 405:
        error = HTTPException(405, error.detail, {"allow": ", ".join(sorted(_methods(request)))})
    if isinstance(error, HTTPException) and error.status_code == 404 and _shows_pages(request):
        return page(request, 404)
    return answer_error(error)


def _shows_pages(request: Request) -> bool:
    """Whether a browser asked for a page: it is answered with one, and everything else with a problem document."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    asked = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    return asked and not path.startswith((f"{PREFIX}/", "/assets/"))


def _methods(request: Request) -> set[str]:
    """All methods of this path: Starlette names those of the first route only."""
    asked = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    known = request.app.openapi()["paths"].items()
    fitting = [methods for path, methods in known if re.fullmatch(re.sub(r"\{\w+\}", ANY_ID, path), asked)]
    return {method.upper() for methods in fitting for method in methods}


async def _always(request: Request, caller: Caller) -> bool:
    return True

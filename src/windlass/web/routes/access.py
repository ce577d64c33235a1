"""The routes of tokens and of the session."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from windlass.web.answers import answer
from windlass.web.routing import WITH_BODY, Entered, make_routes, problems
from windlass.web.schemas import access as schemas

MISSING = problems(404, *WITH_BODY)

access_router = make_routes("access")


@access_router.get("/session", response_model=schemas.SessionDocument, summary="Read who you are")
async def read_session(visit: Entered) -> Response:
    """The name, the role and the tenant of the caller."""
    return answer(await visit.service.session(visit.caller))


@access_router.get("/tokens", response_model=schemas.TokenList, summary="List tokens")
async def read_tokens(visit: Entered) -> Response:
    """All tokens, without their secrets."""
    return answer(await visit.service.tokens(visit.caller))


@access_router.post(
    "/tokens",
    status_code=201,
    response_model=schemas.TokenSecret,
    responses=problems(409, *WITH_BODY),
    summary="Create one",
)
async def create_token(body: schemas.TokenBody, visit: Entered) -> Response:
    """The secret is in this answer and nowhere else: only its hash is stored."""
    options: dict[str, Any] = body.model_dump(exclude={"expires_in"}) | {"expires": body.expires_in}
    return answer(await visit.service.create_token(visit.caller, **options), 201)


@access_router.post("/tokens/revoke", response_model=schemas.TokenDocument, responses=MISSING, summary="Revoke a token")
async def revoke_token(body: schemas.RevokeBody, visit: Entered) -> Response:
    """The token is refused from now on; another server that has just seen it learns it within 5 seconds."""
    return answer(await visit.service.revoke_token(visit.caller, body.token))

"""Finds the caller of a request by its token, which a program sends as `Authorization: Bearer wl_…`.

A page trades its token for a cookie once (`POST /session`), and its scripts cannot read it from then on. A token in a
URL is not accepted: URLs are logged.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer

from windlass.actor import user_and_host
from windlass.errors import StoreError, TokenRefused
from windlass.model.token import Role, hash_secret
from windlass.web.caller import Caller
from windlass.web.guard import is_local

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.model.token import TokenRow

COOKIE = "windlass_token"
KNOWN_FOR = 5.0  # seconds for which a token is not looked up again: a revoked one works no longer than that
MOST_KNOWN = 1_000

bearer_scheme = HTTPBearer(auto_error=False, description="a token of `windlass token create NAME --role ROLE`")
cookie_scheme = APIKeyCookie(name=COOKIE, auto_error=False, description="set by `POST /session`")


class Doors:
    """The tokens of one server.

    With `local`, a request from this machine needs no token, as long as there is none: its caller is the user who
    started the server, as an admin. That is for a server on a loopback address, at the user's own desk. Once there is a
    token, every request needs one, also after that token has expired.
    """

    def __init__(self, app: Windlass, *, local: bool = False) -> None:
        self._app = app
        self._local = local
        self._known: dict[str, tuple[float, TokenRow]] = {}
        self._revocations = 0  # through this server
        self._asked_at = 0.0  # when it was asked whether there is a token

    async def identify(
        self,
        request: Request,
        bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer_scheme)] = None,
        cookie: Annotated[str | None, Depends(cookie_scheme)] = None,
    ) -> Caller:
        """The caller of a request. Raises TokenRefused."""
        secret = cookie if bearer is None else bearer.credentials
        caller = await self.find(secret) if secret else await self._find_local(request, known_for=0.0)
        if caller is not None:
            return caller
        if secret:
            raise TokenRefused("the token is unknown, revoked or expired; list tokens: windlass token list")
        raise TokenRefused(
            "this needs a token; create one: windlass token create NAME --role viewer, and send it as "
            "Authorization: Bearer TOKEN"
        )

    async def still_allows(self, request: Request, caller: Caller) -> bool:
        """Whether the caller of an open stream would be let in again. While the database is away, nothing is known."""
        scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
        secret = credentials.strip() if scheme.lower() == "bearer" else request.cookies.get(COOKIE)
        try:
            return (await self.find(secret) if secret else await self._find_local(request)) == caller
        except StoreError:
            return True

    async def find(self, secret: str) -> Caller | None:
        """The caller with this token; None: it is unknown, revoked or expired."""
        hash, now = hash_secret(secret), asyncio.get_running_loop().time()
        if hash is None:
            return None
        until, row = self._known.get(hash, (0.0, None))
        if row is None or until < now:
            self._known.pop(hash, None)
            before = self._revocations
            row = await self._app.afind_token(secret)
            if row is None:
                return None
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            if before == self._revocations:  # else the row may be older than a revocation that came while it was read
                self._known[hash] = (now + KNOWN_FOR, row)
        return Caller(name=row.name, role=row.role, tenant=row.tenant)

    def forget(self) -> None:
        """A token was revoked through this server: look each one up again."""
        self._revocations += 1
        self._known.clear()

    async def _find_local(self, request: Request, known_for: float = KNOWN_FOR) -> Caller | None:
        """The user of this machine. A request asks the store each time: the first token closes the door at once. A
        thousand open streams share an answer of the last seconds."""
        if not self._local or not is_local(request):
            return None
        now = asyncio.get_running_loop().time()
        if self._asked_at + known_for <= now:
            self._local = not await self._app.ahas_tokens()
            self._asked_at = now
        return Caller(name=user_and_host(), role=Role.ADMIN) if self._local else None

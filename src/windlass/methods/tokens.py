"""API tokens in a program: `app.create_token("ci", role="operator")`, `app.revoke_token("ci")`; awaited: `app.a…`.

The command line uses the same checks. The secret of a token leaves this module once, in the answer of its creation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING
from uuid import UUID

from windlass.blocking import blocking
from windlass.clock import Duration, seconds, spell
from windlass.config import suggest
from windlass.errors import ConfigError, JobNotFound, TokenError, TokenNotFound
from windlass.model.job import parse_id
from windlass.model.token import PREFIX, NewToken, Role, TokenRow, hash_secret, new_secret
from windlass.names import name_problem

if TYPE_CHECKING:
    from windlass.client import Client
    from windlass.store.protocol import Store

SHORTEST_LIFE = 1.0  # seconds


class TokenCalls:
    """The methods of `Windlass` that create, list, revoke and find API tokens."""

    _client: Client
    _noun = "app"

    async def acreate_token(
        self, name: str, *, role: Role | str = "viewer", tenant: str | None = None, expires: Duration | None = None
    ) -> NewToken:
        """Create an API token: `app.create_token("ci", role="operator", tenant="acme", expires="90d").secret`.

        A viewer reads, an operator also changes jobs, and an admin also sees hidden values and manages tokens. With
        `tenant`, the token reaches the jobs of that tenant only; an admin token has no tenant. Only a hash of the
        secret is stored: this answer is the only place to read it. Raises TokenError while a live token has the name.
        """
        actor = self._client.settings.acting
        return await self._client.aask(creation(name, role=role, tenant=tenant, expires=expires, actor=actor))

    async def atokens(self) -> list[TokenRow]:
        """The API tokens, without their secrets, live ones first: `[row.name for row in app.tokens() if row.live]`.

        Revoked and expired ones are listed, too. At most 1,000 are returned.
        """
        return await self._client.aask(lambda store: store.tokens())

    async def arevoke_token(self, name_or_id: str | UUID) -> TokenRow:
        """Refuse a token: `app.revoke_token("ci")`. Raises TokenNotFound, also for a revoked one.

        A server of the HTTP API that has just seen the token learns it within 5 seconds.
        """
        named, actor = checked_reference(name_or_id), self._client.settings.acting
        return await self._client.aask(lambda store: store.revoke_token(named, actor=actor))

    async def afind_token(self, secret: str) -> TokenRow | None:
        """The token with this secret: `app.find_token(secret)`. None: it is unknown, revoked or expired.

        Whether a token is expired is decided by the store's clock.
        """
        hash = hash_secret(secret)
        return None if hash is None else await self._client.aask(lambda store: store.find_token(hash))

    async def ahas_tokens(self) -> bool:
        """Whether any API token is live: `app.has_tokens()`."""
        return await self._client.aask(lambda store: store.has_tokens())

    async def arecord_reveal(self, job_id: str | UUID) -> None:
        """Write into the audit that the actor sees the hidden values of a job: `app.record_reveal(job.id)`.

        Call it before they are shown. Raises JobNotFound, and then there is nothing to show.
        """
        id, actor = parse_id(job_id), self._client.settings.acting
        if not await self._client.aask(lambda store: store.record_reveal(id, actor=actor)):
            raise JobNotFound(f"there is no job {id}: it was discarded, or its history was deleted")

    create_token = blocking(acreate_token)
    tokens = blocking(atokens)
    revoke_token = blocking(arevoke_token)
    find_token = blocking(afind_token)
    has_tokens = blocking(ahas_tokens)
    record_reveal = blocking(arecord_reveal)


def creation(
    name: str, *, role: Role | str, tenant: str | None, expires: Duration | None, actor: str
) -> Callable[[Store], Awaitable[NewToken]]:
    """What creates the token in a store. The arguments are checked here, before a store is asked."""
    _check_name(name)
    known, life = checked_role(role), None if expires is None else _checked_life(expires)
    _check_tenant(tenant, known)

    async def create(store: Store) -> NewToken:
        secret = new_secret()
        hash = hash_secret(secret)
        assert hash is not None
        token = await store.create_token(name, hash, role=known, tenant=tenant, expires=life, actor=actor)
        return NewToken(secret=secret, token=token)

    return create


# Checks


def checked_role(role: Role | str) -> Role:
    try:
        return Role(role)
    except ValueError:
        raise TokenError(
            f"no role is called {role!r}{suggest(str(role), {each.value: each for each in Role})}"
        ) from None


def checked_reference(name_or_id: str | UUID) -> str:
    """A token's name, or its id in the form in which it is stored."""
    text = str(name_or_id)
    if text.startswith(PREFIX):  # the error does not repeat it: it would be in a log or a terminal
        raise TokenNotFound("this is a secret; name the token by its name or its id: windlass token list")
    id = _as_id(text)
    return text if id is None else str(id)


def _check_name(name: str) -> None:
    problem = name_problem(name)
    if problem is not None:
        raise TokenError(f"the name of a token {problem}")
    if name.startswith(PREFIX):
        raise TokenError(f"the name of a token begins with {PREFIX!r}, as only secrets do; choose another name")
    if _as_id(name) is not None:
        raise TokenError(f"the name {name!r} is an id, and a token is revoked by either; choose another name")


def _check_tenant(tenant: str | None, role: Role) -> None:
    if tenant is None:
        return
    problem = name_problem(tenant)
    if problem is not None:
        raise TokenError(f"tenant {problem}")
    if role is Role.ADMIN:
        raise TokenError(
            f"an admin token cannot have the tenant {tenant!r}: an admin manages tokens, and could create one for all "
            "tenants; give the role operator, or leave the tenant out"
        )


def _checked_life(expires: Duration) -> float:
    try:
        life = seconds(expires, what="expires")
    except ConfigError as error:
        raise TokenError(str(error)) from None
    if life < SHORTEST_LIFE:
        raise TokenError(f"expires={expires!r} is too short; {spell(SHORTEST_LIFE)} is the least")
    return life


def _as_id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None

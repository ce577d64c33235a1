"""API tokens, written once for both stores: created and revoked with a row of the audit, found by a hash."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from windlass.errors import TokenExists, TokenNotFound
from windlass.model import audit
from windlass.model.job import new_id
from windlass.model.token import Role, TokenRow
from windlass.store.parts.admission import record_subject_action
from windlass.store.parts.consequences import record_job_action
from windlass.store.parts.statements import Statements, run, uuid_of
from windlass.store.parts.ticks import time_of

T = TypeVar("T")


class TokensPart:
    """The part of a store that keeps API tokens. The store supplies how statements are run."""

    async def _run_in_transaction(self, statements: Callable[[], Statements[T]]) -> T:
        """Run the statements in a transaction of their own."""
        raise NotImplementedError

    async def _run_one_by_one(self, statements: Callable[[], Statements[T]]) -> T:
        """Run statements that only read."""
        raise NotImplementedError

    async def create_token(
        self,
        name: str,
        hash: str,
        *,
        role: Role,
        tenant: str | None = None,
        expires: float | None = None,
        actor: str | None = None,
    ) -> TokenRow:
        row = {"id": new_id(), "name": name, "hash": hash, "role": role, "tenant": tenant}
        return await self._run_in_transaction(lambda: create(row | {"expires": expires, "actor": actor}))

    async def tokens(self) -> list[TokenRow]:
        return [_token(row) for row in await self._run_one_by_one(lambda: run("tokens"))]

    async def revoke_token(self, named: str, *, actor: str | None = None) -> TokenRow:
        return await self._run_in_transaction(lambda: revoke(named, actor))

    async def find_token(self, hash: str) -> TokenRow | None:
        rows = await self._run_one_by_one(lambda: run("find_token", [hash]))
        return _token(rows[0]) if rows else None

    async def record_reveal(self, job: UUID, *, actor: str | None = None) -> bool:
        return await self._run_in_transaction(lambda: record_job_action(audit.REVEALED, actor, job))

    async def has_tokens(self) -> bool:
        return bool(await self._run_one_by_one(lambda: run("any_token")))


def create(row: dict[str, Any]) -> Statements[TokenRow]:
    """Two creations of one name may meet: the unique index lets one of them in, and the other finds no row."""
    name, actor = str(row["name"]), row["actor"]
    for _ in (yield from run("revoke_expired_token", [{"name": name, "actor": actor}])):
        yield from record_subject_action(audit.TOKEN_REVOKED, actor, f"token:{name}", "expired")
    if not (yield from run("create_token", [row])):
        raise TokenExists(
            f"a live token is called {name!r} already; choose another name, or revoke it first: "
            f"windlass token revoke {name}"
        )
    role, tenant = row["role"], row["tenant"]
    reach = "all tenants" if tenant is None else f"tenant {tenant}"
    yield from record_subject_action(audit.TOKEN_CREATED, actor, f"token:{name}", f"{role} of {reach}")
    (written,) = yield from run("find_token", [row["hash"]])
    return _token(written)


def revoke(named: str, actor: str | None) -> Statements[TokenRow]:
    rows = yield from run("revoke_token", [{"named": named, "actor": actor}])
    if not rows:
        raise _not_found(named, [_token(row) for row in (yield from run("tokens"))])
    token = _token(rows[0])
    yield from record_subject_action(audit.TOKEN_REVOKED, actor, f"token:{token.name}", None)
    return token


def _not_found(named: str, known: Sequence[TokenRow]) -> TokenNotFound:
    for token in known:
        if named in (token.name, str(token.id)) and token.revoked_at is not None:
            by = f" by {token.revoked_by}" if token.revoked_by else ""
            return TokenNotFound(f"token {named!r} was revoked{by} at {token.revoked_at:%Y-%m-%d %H:%M} UTC already")
    close = difflib.get_close_matches(named, [token.name for token in known if token.revoked_at is None], n=1)
    meant = f"; did you mean {close[0]!r}?" if close else "; see them: windlass token list"
    return TokenNotFound(f"no token has the name or id {named!r}{meant}")


def _token(row: Sequence[Any]) -> TokenRow:
    id, name, role, tenant, created_at, created_by, expires_at, revoked_at, revoked_by, live = row
    return TokenRow(
        id=uuid_of(id),
        name=name,
        role=Role(role),
        tenant=tenant,
        created_at=time_of(created_at),
        created_by=created_by,
        expires_at=None if expires_at is None else time_of(expires_at),
        revoked_at=None if revoked_at is None else time_of(revoked_at),
        revoked_by=revoked_by,
        live=bool(live),
    )

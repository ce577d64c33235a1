"""The bodies of requests and answers about tokens and the session."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from windlass.model.token import Role
from windlass.web.schemas.base import (
    LONGEST_SPAN,
    Answer,
    Body,
    Name,
)


class TokenDocument(Answer):
    """A token, without its secret."""

    id: UUID
    name: str
    role: Role
    tenant: str | None
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    live: bool
    state: Literal["live", "expired", "revoked"]


class TokenList(Answer):
    """All tokens."""

    tokens: list[TokenDocument]


class NewTokenBody(Body):
    """A token to make; without `expires_in` it never expires."""

    name: Name
    expires_in: float | None = Field(default=None, ge=1, le=LONGEST_SPAN, strict=True, description="seconds")


class AdminTokenBody(NewTokenBody):
    """An admin sees and changes the jobs of every tenant."""

    role: Literal["admin"]


class TenantTokenBody(NewTokenBody):
    """With `tenant`, the token reaches the jobs of that tenant only."""

    role: Literal["viewer", "operator"]
    tenant: Name | None = None


TokenBody = Annotated[AdminTokenBody | TenantTokenBody, Field(discriminator="role")]


class TokenSecret(TokenDocument):
    """A new token with its secret, which is shown once and not stored."""

    secret: str


class RevokeBody(Body):
    """A token by its name or id."""

    token: Name


class SessionBody(Body):
    """A token that a page trades for a cookie."""

    token: str = Field(min_length=1, max_length=500)


class SessionDocument(Answer):
    """Who the caller is, where the jobs are, and what time the server has."""

    name: str
    role: Role
    tenant: str | None
    store: str
    now: datetime

"""API tokens: what a program shows to the HTTP API, the roles that they have, and how a secret is made and hashed."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

PREFIX = "wl_"  # a search for leaked secrets finds it
RANDOM_BYTES = 32
LONGEST_SECRET = 200  # characters; a longer text is no secret of ours, and is not hashed


class Role(StrEnum):
    """What a token may do: a viewer reads, an operator also changes jobs, an admin also reveals and makes tokens."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def allows(self, needed: Role) -> bool:
        """Whether this role may do what needs the other one: `Role.ADMIN.allows(Role.OPERATOR)`."""
        return ORDER[self] >= ORDER[needed]


ORDER = {role: place for place, role in enumerate(Role)}


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """An API token without its secret, of which only a hash is stored."""

    id: UUID
    name: str  # unique among live tokens; the audit names it as the actor
    role: Role
    tenant: str | None  # None: all tenants
    created_at: datetime
    created_by: str | None  # the actor
    expires_at: datetime | None  # None: never
    revoked_at: datetime | None
    revoked_by: str | None
    live: bool  # neither revoked nor expired, by the store's clock when it was read

    @property
    def state(self) -> str:
        """`live`, `expired` or `revoked`: `[row.name for row in app.tokens() if row.state == "expired"]`."""
        if self.revoked_at is not None:
            return "revoked"
        return "live" if self.live else "expired"

    def may_see(self, tenant: str) -> bool:
        """Whether the token reaches the jobs of this tenant: `token.may_see(job.tenant)`."""
        return self.tenant is None or self.tenant == tenant

    def document(self) -> dict[str, Any]:
        """The token as a dict of plain JSON values, as `windlass token list --json` prints it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain | {"state": self.state}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token that was just created, with its secret: `app.create_token("ci").secret`. The secret is not stored."""

    secret: str = field(repr=False)  # the only place where it can be read
    token: TokenRow


def new_secret() -> str:
    """256 random bits as text."""
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def hash_secret(secret: str) -> str | None:
    """The SHA-256 of a secret in hex; None for a text that no secret can be.

    It has no salt and is fast: nothing can guess 256 random bits, and each request needs it.
    """
    if not secret.startswith(PREFIX) or len(secret) > LONGEST_SECRET or not secret.isascii():
        return None
    return hashlib.sha256(secret.encode("ascii")).hexdigest()

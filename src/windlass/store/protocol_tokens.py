"""The API tokens of a store, and the record of what was revealed. `store/parts/tokens.py` implements both once."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from windlass.model.token import Role, TokenRow


class TokenStore(Protocol):
    """Tokens by the hash of their secret. Whether one is expired is decided by the store's clock."""

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
        """Write a token that is valid for `expires` seconds, or until it is revoked.

        Raises TokenError while a live token has the name.
        """
        ...

    async def tokens(self) -> list[TokenRow]:
        """Live ones first, each kind newest first; 1,000 at most."""
        ...

    async def revoke_token(self, named: str, *, actor: str | None = None) -> TokenRow:
        """Revoke a token by its name or its id; raises TokenNotFound. A second revocation is not found either."""
        ...

    async def find_token(self, hash: str) -> TokenRow | None:
        """The live token with this hash."""
        ...

    async def record_reveal(self, job: UUID, *, actor: str | None = None) -> bool:
        """Write into the audit that an actor saw the hidden values of a job; False where there is no such job."""
        ...

    async def has_tokens(self) -> bool:
        """Whether any token is live."""
        ...

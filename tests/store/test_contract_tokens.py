"""API tokens: found by a hash alone, one live token per name, refused once revoked or expired by the store's clock."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from windlass.errors import TokenError, TokenNotFound
from windlass.model.token import Role, hash_secret, new_secret

if TYPE_CHECKING:
    from .rig import Rig

HOUR = 3_600.0


def fresh() -> str:
    hash = hash_secret(new_secret())
    assert hash is not None
    return hash


async def audited(rig: Rig) -> list[tuple[str, str | None, str | None, str | None]]:
    return [(row.action, row.subject, row.actor, row.reason) for row in reversed(await rig.store.audit())]


async def test_a_token_is_found_by_its_hash(rig: Rig) -> None:
    hash = fresh()

    made = await rig.store.create_token("ci", hash, role=Role.OPERATOR, tenant="acme", actor="ann")

    assert await rig.store.find_token(hash) == made
    assert await rig.store.find_token(fresh()) is None
    assert (made.name, made.role, made.tenant, made.created_by) == ("ci", Role.OPERATOR, "acme", "ann")
    assert (made.created_at, made.expires_at, made.revoked_at, made.state) == (rig.clock.now(), None, None, "live")
    assert await audited(rig) == [("TOKEN_CREATED", "token:ci", "ann", "operator of tenant acme")]


async def test_a_token_expires_by_the_stores_clock(rig: Rig) -> None:
    hash = fresh()
    made = await rig.store.create_token("ci", hash, role=Role.VIEWER, expires=HOUR)
    assert made.expires_at is not None
    assert (made.expires_at - made.created_at).total_seconds() == HOUR

    await rig.advance(HOUR - 1)
    assert await rig.store.find_token(hash) is not None
    assert await rig.store.has_tokens()

    await rig.advance(1)
    assert await rig.store.find_token(hash) is None
    assert not await rig.store.has_tokens()
    assert [row.state for row in await rig.store.tokens()] == ["expired"]


@pytest.mark.parametrize("by", ["name", "id"])
async def test_a_revoked_token_is_refused(rig: Rig, by: str) -> None:
    hash, other = fresh(), fresh()
    made = await rig.store.create_token("ci", hash, role=Role.VIEWER)
    await rig.store.create_token("web", other, role=Role.VIEWER)
    await rig.advance(5)

    revoked = await rig.store.revoke_token(made.name if by == "name" else str(made.id), actor="bob")

    assert (revoked.id, revoked.revoked_at, revoked.revoked_by) == (made.id, rig.clock.now(), "bob")
    assert await rig.store.find_token(hash) is None
    assert await rig.store.find_token(other) is not None
    assert (await audited(rig))[-1] == ("TOKEN_REVOKED", "token:ci", "bob", None)
    assert [(row.name, row.state) for row in await rig.store.tokens()] == [("web", "live"), ("ci", "revoked")]


async def test_a_token_is_revoked_once(rig: Rig) -> None:
    """Two operators revoke it at the same moment: one of them did it, and the audit names that one alone."""
    await rig.store.create_token("ci", fresh(), role=Role.VIEWER, actor="ann")
    another = rig.another()
    await another.open()

    answers = await asyncio.gather(
        rig.store.revoke_token("ci", actor="bob"), another.revoke_token("ci", actor="cyd"), return_exceptions=True
    )
    await another.close()

    (refused,) = [answer for answer in answers if isinstance(answer, BaseException)]
    assert isinstance(refused, TokenNotFound)
    assert "was revoked by" in str(refused)
    assert [row[0] for row in await audited(rig)] == ["TOKEN_CREATED", "TOKEN_REVOKED"]


async def test_one_live_token_has_a_name(rig: Rig) -> None:
    """Two creations of one name meet: the index lets one in, and the other one leaves nothing behind."""
    another = rig.another()
    await another.open()

    answers = await asyncio.gather(
        rig.store.create_token("ci", fresh(), role=Role.VIEWER),
        another.create_token("ci", fresh(), role=Role.ADMIN),
        return_exceptions=True,
    )
    await another.close()

    (refused,) = [answer for answer in answers if isinstance(answer, BaseException)]
    assert isinstance(refused, TokenError)
    assert "windlass token revoke ci" in str(refused)
    assert len(await rig.store.tokens()) == 1
    assert len(await rig.store.audit()) == 1


async def test_a_name_is_free_again_after_a_revocation(rig: Rig) -> None:
    old, new = fresh(), fresh()
    await rig.store.create_token("ci", old, role=Role.VIEWER)
    await rig.store.revoke_token("ci")

    await rig.store.create_token("ci", new, role=Role.VIEWER)

    assert await rig.store.find_token(old) is None
    assert await rig.store.find_token(new) is not None


async def test_the_name_of_an_expired_token_is_free(rig: Rig) -> None:
    old, new = fresh(), fresh()
    await rig.store.create_token("ci", old, role=Role.VIEWER, expires=HOUR, actor="ann")
    await rig.advance(HOUR)

    await rig.store.create_token("ci", new, role=Role.VIEWER, actor="bob")

    assert await rig.store.find_token(old) is None
    assert await rig.store.find_token(new) is not None
    assert (await audited(rig))[1:] == [
        ("TOKEN_REVOKED", "token:ci", "bob", "expired"),
        ("TOKEN_CREATED", "token:ci", "bob", "viewer of all tenants"),
    ]


async def test_an_unknown_token_is_answered_with_the_next_command(rig: Rig) -> None:
    await rig.store.create_token("deploy", fresh(), role=Role.VIEWER)

    with pytest.raises(TokenNotFound, match="did you mean 'deploy'"):
        await rig.store.revoke_token("deplyo")
    with pytest.raises(TokenNotFound, match="windlass token list"):
        await rig.store.revoke_token("x")

    assert [row[0] for row in await audited(rig)] == ["TOKEN_CREATED"]


async def test_the_database_refuses_an_admin_of_one_tenant(rig: Rig) -> None:
    with pytest.raises(Exception, match=r"(?i)constraint|check"):
        await rig.store.create_token("root", fresh(), role=Role.ADMIN, tenant="acme")

    assert await rig.store.tokens() == []
    assert await rig.store.audit() == []

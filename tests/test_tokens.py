"""API tokens in a program: created and revoked by an actor, found by a secret that is stored and shown nowhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from servers import url_of
from windlass import JobNotFound, NewToken, Role, TokenError, TokenNotFound, Windlass, acting_as
from windlass.model.token import hash_secret, new_secret
from windlass.testing import Harness, harness

Act = Callable[..., Any]


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:////nowhere/jobs.db", actor="ann")


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, app: Windlass) -> Iterator[Harness]:
    url = None if request.param == "sqlite" else url_of("postgres")
    with harness(app, url, patience="30s") as bench:
        yield bench


@pytest.fixture(params=["blocking", "async"])
def act(request: pytest.FixtureRequest, app: Windlass) -> Act:
    """A call by its name: the one that waits, and the one that is awaited."""

    def call(name: str, *arguments: Any, **options: Any) -> Any:
        if request.param == "blocking":
            return getattr(app, name)(*arguments, **options)
        return asyncio.run(getattr(app, f"a{name}")(*arguments, **options))

    return call


def test_a_token_is_created_found_and_revoked(bench: Harness, act: Act) -> None:
    assert act("has_tokens") is False

    new: NewToken = act("create_token", "ci", role="operator", tenant="acme", expires="90d")
    found = act("find_token", new.secret)

    assert found == new.token
    assert (found.name, found.role, found.tenant, found.created_by) == ("ci", Role.OPERATOR, "acme", "ann")
    assert found.may_see("acme")
    assert not found.may_see("other")
    assert act("tokens") == [found]
    assert act("has_tokens") is True

    assert act("revoke_token", found.id).state == "revoked"
    assert act("find_token", new.secret) is None
    assert act("has_tokens") is False


def test_the_audit_names_the_actor_of_the_call(app: Windlass, bench: Harness, act: Act) -> None:
    with acting_as("bob"):
        new: NewToken = act("create_token", "ci")
    act("revoke_token", "ci")

    assert new.token.created_by == "bob"
    rows = [(row.action, row.subject, row.actor) for row in reversed(app.audit())]
    assert rows == [("TOKEN_CREATED", "token:ci", "bob"), ("TOKEN_REVOKED", "token:ci", "ann")]


def test_a_secret_is_stored_and_shown_nowhere(
    app: Windlass, bench: Harness, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    caplog.set_level(logging.DEBUG)

    new = app.create_token("ci")
    app.find_token(new.secret)

    table = "windlass_tokens" if request.node.callspec.params["bench"] == "sqlite" else "windlass.tokens"
    rows = bench.fetch(f"select * from {table}")
    secret = new.secret.removeprefix("wl_")
    assert rows[0]["hash"] == hash_secret(new.secret)
    assert secret not in repr(rows) + repr(new) + str(new) + repr(app.tokens()) + repr(app.audit()) + caplog.text


@pytest.mark.parametrize("secret", ["", "wl_", "x", "wl_" + "a" * 300, "wl_é", "wl_\x00"])
def test_a_text_that_is_no_secret_finds_nothing(app: Windlass, bench: Harness, secret: str) -> None:
    app.create_token("ci")

    assert app.find_token(secret) is None


# Refusals, for which no store is asked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": ""}, "the name of a token is empty"),
        ({"name": "a\nb"}, "control character"),
        ({"name": "x" * 201}, "200 is the most"),
        ({"name": "0198c3a2-7b1e-7a52-9c3d-5e6f70819203"}, "is an id"),
        ({"name": "wl_ci"}, "as only secrets do"),
        ({"name": "ci", "role": "operater"}, "did you mean 'operator'"),
        ({"name": "ci", "role": "root"}, "there are: admin, operator, viewer"),
        ({"name": "ci", "tenant": " "}, "tenant is empty"),
        ({"name": "ci", "role": "admin", "tenant": "acme"}, "could create one for all tenants"),
        ({"name": "ci", "expires": "soon"}, "expires: 'soon' is not a duration"),
        ({"name": "ci", "expires": 0}, "too short"),
    ],
)
def test_a_token_that_cannot_be_is_refused_with_a_reason(app: Windlass, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(TokenError, match=said):
        app.create_token(**arguments)


def test_a_refused_name_that_may_be_a_secret_is_not_repeated(app: Windlass) -> None:
    secret = new_secret()

    with pytest.raises(TokenError) as created:
        app.create_token(secret)
    with pytest.raises(TokenNotFound) as revoked:
        app.revoke_token(secret)

    assert secret.removeprefix("wl_") not in f"{created.value} {revoked.value}"


def test_an_id_may_be_written_in_capitals(app: Windlass, bench: Harness) -> None:
    new = app.create_token("ci")

    assert app.revoke_token(str(new.token.id).upper()).id == new.token.id
    assert isinstance(new.token.id, UUID)


# Roles


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (Role.VIEWER, {Role.VIEWER}),
        (Role.OPERATOR, {Role.VIEWER, Role.OPERATOR}),
        (Role.ADMIN, {Role.VIEWER, Role.OPERATOR, Role.ADMIN}),
    ],
)
def test_a_role_allows_itself_and_what_is_below(role: Role, may: set[Role]) -> None:
    assert {needed for needed in Role if role.allows(needed)} == may


def test_secrets_are_long_and_differ() -> None:
    made = {new_secret() for _ in range(100)}

    assert len(made) == 100
    assert all(secret.startswith("wl_") and len(secret) == 46 for secret in made)


# Reveals


def test_a_reveal_names_its_actor(app: Windlass, bench: Harness, act: Act) -> None:
    @app.job
    def send() -> None: ...

    job = send.enqueue()

    with acting_as("bob"):
        act("record_reveal", job.id)
    with pytest.raises(JobNotFound, match="there is no job"):
        act("record_reveal", uuid4())

    (row,) = act("audit", actor="bob", tenant="default")
    assert (row.action, row.job) == ("JOB_REVEALED", job.id)
    assert act("audit", actor="ann") == act("audit", tenant="acme") == []

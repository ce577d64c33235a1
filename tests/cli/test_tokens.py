"""`windlass token`: the secret is printed once, and a token is listed and revoked without it."""

from __future__ import annotations

import pytest

from .cli_store import CliStore


def test_a_token_is_created_listed_and_revoked(cli_store: CliStore) -> None:
    made = cli_store.run_json("token", "create", "ci", "--role", "operator", "--tenant", "acme", "--expires", "90d")

    listed = cli_store.run("token").stdout
    (row,) = cli_store.run_json("token", "list")["tokens"]

    assert made["secret"].startswith("wl_")
    assert row == made["token"]
    assert (row["name"], row["role"], row["tenant"], row["state"]) == ("ci", "operator", "acme", "live")
    assert listed.split("\t")[:4] == ["ci", "operator", "acme", "live"]
    assert made["secret"] not in listed

    assert cli_store.run("token", "revoke", row["id"]).stdout.startswith("token ci is revoked\n")
    assert cli_store.run_json("token")["tokens"][0]["state"] == "revoked"
    actions = [each["action"] for each in cli_store.run_json("audit")["audit"]]
    assert actions == ["TOKEN_REVOKED", "TOKEN_CREATED"]


def test_in_a_pipe_the_secret_is_alone(file_cli_store: CliStore) -> None:
    secret = file_cli_store.run("token", "create", "ci").stdout

    assert secret.startswith("wl_")
    assert len(secret.split()) == 1
    assert file_cli_store.run_json("token", "list")["tokens"][0]["role"] == "viewer"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "ci", "--role", "operater"), "did you mean 'operator'"),
        (("create", "ci", "--role", "admin", "--tenant", "acme"), "could create one for all tenants"),
        (("create", "ci", "--expires", "soon"), "is not a duration"),
        (("create",), "windlass token create ci --role operator"),
        (("revoke", "ci"), "windlass token list"),
        (("delete", "ci"), "windlass token revoke ci"),
    ],
)
def test_a_mistake_is_answered_with_what_to_write(file_cli_store: CliStore, words: tuple[str, ...], said: str) -> None:
    output = file_cli_store.run("token", *words)

    assert output.exit_code == 2
    assert said in output.stderr


def test_the_audit_of_one_actor_and_of_one_tenant(cli_store: CliStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_ACTOR", "ann")
    (job,) = cli_store.enqueue(tenant="acme")
    cli_store.run("jobs", "cancel", str(job))
    cli_store.run("gates", "pause", "--queue", "mail")

    def actions(*words: str) -> list[str]:
        return [row["action"] for row in cli_store.run_json("audit", *words)["audit"]]

    assert actions("--tenant", "acme") == ["JOB_CANCELLED"]
    assert actions("--actor", "ann") == ["GATE_PAUSED", "JOB_CANCELLED"]
    assert actions("--actor", "bob") == []
    assert "with the actor bob" in cli_store.run("audit", "--actor", "bob").stderr

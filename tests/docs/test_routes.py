"""The table "All routes" in docs/http.md against the OpenAPI document, the service's permissions and the commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from windlass import Role, Windlass
from windlass.cli.main import cli
from windlass.errors import AccessDenied
from windlass.web import Caller, make_api, make_router
from windlass.web.routing import REASONS

TEXT = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
PREFIX = "/api/v1"
ID = "0192f0c4-7b1e-7a52-9c3d-5e6f70819203"

SENT: dict[str, dict[str, Any]] = {
    "POST /bulk": {"verb": "cancel"},
    "POST /jobs": {"type": "send"},
    "POST /jobs/batch": {"jobs": [{"type": "send"}]},
    "POST /jobs/bulk": {"verb": "cancel"},
    "POST /jobs/{id}/rerun": {},
    "POST /jobs/{id}/signal": {"name": "answer"},
    "POST /jobs/{id}/dry-run": {},
    **{f"POST /letters/{verb}": {"ids": ["letter:1-0"]} for verb in ("replay", "discard")},
    "POST /gates/pause": {"kind": "all"},
    "POST /gates/resume": {"kind": "all"},
    "POST /limits/hold": {"key": "api", "seconds": 1},
    "POST /limits/release": {"key": "api"},
    "PUT /budgets": {"kind": "queue", "name": "mail", "cents": 1, "per": "day"},
    "PUT /tenants/weight": {"tenant": "acme", "weight": 2},
    **{
        f"POST /schedules/{verb}": {"name": "nightly"}
        for verb in ("pause", "resume", "edit", "reset", "fire", "forget")
    },
    "POST /tokens": {"name": "ci", "role": "viewer"},
    "POST /tokens/revoke": {"token": "ci"},
}
"""A valid body of each route that has one."""
ASKED = {"GET /limits/use": {"key": "api"}, "DELETE /budgets": {"kind": "queue", "name": "mail"},
         "GET /lists": {"list": "jobs"}, "GET /letters/one": {"id": "letter:1-0"},
         "GET /schedules/ticks": {"name": "nightly"}}  # fmt: skip
"""The queries that a route cannot do without."""


class Row(NamedTuple):
    route: str  # `GET /stream?list=jobs`
    role: str
    one_tenant: bool
    command: str

    @property
    def operation(self) -> str:
        return self.route.partition("?")[0]


ROWS = [
    Row(route, role, tenant == "yes", command)
    for route, role, tenant, command in re.findall(
        r"^\| `((?:GET|POST|PUT|DELETE) [^`]+)` \| ([a-z ]+) \| (yes|no) \| `?([a-z ]*?)`? ?\|$", TEXT, re.MULTILINE
    )
]
APP = Windlass("sqlite:///none.db")  # never opened: each call ends at the check of the caller
OPERATIONS = {
    f"{method.upper()} {path.removeprefix(PREFIX)}": operation
    for path, methods in make_api(APP).openapi()["paths"].items()
    for method, operation in methods.items()
}


def test_the_table_has_every_route() -> None:
    assert {row.operation for row in ROWS} == set(OPERATIONS)
    assert len({row.route for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.route)
def test_the_role_and_the_reach_are_those_of_the_service(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def refuse(caller: Caller, role: Role, *, tenants: bool) -> None:
        asked.append((role.value, tenants))
        raise AccessDenied("asked")

    monkeypatch.setattr(Caller, "require", refuse)
    answer = request(row.route)

    if "security" not in OPERATIONS[row.operation]:
        assert (row.role, row.one_tenant) == ("none", True)
    elif not asked:
        assert answer == 200
        assert (row.role, row.one_tenant) == ("any token", True)
    else:
        assert answer == 403
        assert asked == [(row.role, row.one_tenant)]


@pytest.mark.parametrize("row", [row for row in ROWS if row.command], ids=lambda row: row.route)
def test_the_command_exists(row: Row) -> None:
    command: click.Command = cli
    for word in row.command.split():
        assert isinstance(command, click.Group)
        command = command.commands[word]


@pytest.mark.parametrize("code", REASONS)
def test_every_status_of_an_error_is_described(code: int) -> None:
    assert re.search(rf"^\| {code} \|", TEXT, re.MULTILINE)


def request(route: str) -> int:
    """The status of a valid request by an admin, in a program with the routes alone."""
    program = FastAPI()
    program.include_router(make_router(APP, caller=lambda: Caller(name="ann", role=Role.ADMIN)))
    method, _, url = route.replace("{id}", ID).partition(" ")
    operation = route.partition("?")[0]
    asked = ASKED.get(operation)
    return TestClient(program).request(method, url, json=SENT.get(operation), params=asked).status_code

"""The API in other programs: mounted, as a router with its own authentication, described, called by a typed client."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import httpx2 as httpx
import pytest
from fastapi import Depends, FastAPI, Header, HTTPException

from windlass import Windlass
from windlass.model.token import Role
from windlass.web import Caller, make_api, make_router

from .rig import API, PATIENCE, Served

ROOT = Path(__file__).parents[2]


def inside(api: Any, **headers: str) -> httpx.AsyncClient:
    """A client of an ASGI program, without a socket."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop.example", headers=headers)


async def test_it_is_mounted_in_one_line(app: Windlass) -> None:
    shop = FastAPI()
    shop.mount("/windlass", make_api(app))
    secret = (await app.acreate_token("shop", role="operator")).secret

    async with inside(shop, authorization=f"Bearer {secret}") as client:
        made = await client.post("/windlass/api/v1/jobs", json={"type": "send", "input": {"to": "ann"}})
        found = await client.get(made.headers["location"])
        refused = await client.get("/windlass/api/v1/jobs", headers={"authorization": ""})

    assert made.status_code == 202
    assert found.json()["input"] == {"to": "ann"}
    assert refused.status_code == 401


async def staff(x_staff: Annotated[str | None, Header()] = None) -> str:
    if x_staff is None:
        raise HTTPException(401, "who are you?")
    return x_staff


def caller(name: Annotated[str, Depends(staff)]) -> Caller:
    return Caller(name=name, role=Role.OPERATOR, tenant="acme" if name == "bob" else None)


async def test_its_routes_take_the_authentication_of_the_program(app: Windlass) -> None:
    shop = FastAPI()
    shop.include_router(make_router(app, caller=caller), prefix="/jobs-api")

    async with inside(shop) as client:
        nobody = await client.get("/jobs-api/jobs")
        ann, bob = {"x-staff": "ann"}, {"x-staff": "bob"}
        made = await client.post("/jobs-api/jobs", json={"type": "send", "input": {"to": "ann"}}, headers=ann)
        cancelled = await client.post(f"{made.headers['location']}/cancel", headers=ann)
        foreign = await client.get(made.headers["location"], headers=bob)
        document = (await client.get("/openapi.json")).json()

    assert (nobody.status_code, nobody.json()["detail"]) == (401, "who are you?")
    assert made.headers["location"].startswith("/jobs-api/jobs/")
    assert cancelled.json()["state"] == "cancelled"
    assert foreign.status_code == 404
    assert (await app.aaudit(action="JOB_CANCELLED"))[0].actor == "ann"
    assert "Problem" in document["components"]["schemas"]


async def test_a_caller_of_another_kind_is_an_error_of_the_program(app: Windlass) -> None:
    shop = FastAPI()
    shop.include_router(make_router(app, caller=lambda: "ann"))

    async with inside(shop) as client:
        answer = await client.get("/jobs")

    assert "windlass.web.Caller" in answer.json()["detail"]


async def test_every_answer_about_a_path_is_a_problem_document(served: Served) -> None:
    client = served.client(await served.token())

    missing = await client.get("/nonsense")
    wrong = await client.patch("/budgets")

    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "DELETE, GET, PUT")


# OpenAPI


async def run(*command: str, cwd: Path) -> str:
    """The output of a command that succeeded."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env={**os.environ, "PATH": path},  # the generator formats its code with ruff
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_schemathesis_finds_no_fault(served: Served, tmp_path: Path) -> None:
    """Its requests come from the OpenAPI document, and its checks compare the answers with it."""
    secret = await served.token("admin")
    (tmp_path / "schemathesis.toml").write_text((ROOT / "schemathesis.toml").read_text())

    output = await run(
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{served.origin}{API}/openapi.json"),
        *("--header", f"Authorization: Bearer {secret}", "--seed", "1", "--max-examples", "2"),
        # One worker: two threads in ast.parse of Python 3.11 can raise "AST constructor recursion depth mismatch". The
        # depth is counted per interpreter, and Hypothesis lets another thread run in a callback of the collector.
        *("--phases", "coverage,fuzzing", "--workers", "1"),
        *("--exclude-path-regex", "/stream|/events"),  # they do not end
        cwd=tmp_path,
    )

    assert "No issues found" in output or " passed" in output, output


async def test_a_typed_client_is_generated_and_works(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = (await served.client().get("/openapi.json")).json()
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    config = ("project_name_override: windlass-client", "package_name_override: made_client", "post_hooks: []")
    (tmp_path / "config.yml").write_text("\n".join(config))
    generator = str(Path(sys.executable).with_name("openapi-python-client"))
    await run(
        *(generator, "generate", "--path", "openapi.json", "--meta", "none"),
        *("--output-path", "made_client", "--config", "config.yml", "--fail-on-warning"),
        cwd=tmp_path,
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    client = importlib.import_module("made_client").AuthenticatedClient(
        base_url=served.origin, token=await served.token(), timeout=PATIENCE
    )
    models = importlib.import_module("made_client.models")
    enqueue = importlib.import_module("made_client.api.jobs.enqueue_job")
    read = importlib.import_module("made_client.api.jobs.read_job")

    body = models.NewJobBody(type_="send", input_=models.NewJobBodyInput.from_dict({"to": "ann"}))
    accepted = await enqueue.asyncio(client=client, body=body)
    job = await read.asyncio(accepted.id, client=client)

    assert isinstance(accepted, models.Accepted)
    assert isinstance(job, models.JobDocument)
    assert (job.type_, job.state.value, job.input_) == ("send", "queued", {"to": "ann"})

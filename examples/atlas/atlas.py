"""Tenants send mails and run workflows. `python atlas.py` serves the API and runs three workers beside it."""

from __future__ import annotations

import asyncio
import hmac
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Annotated, Any
from uuid import UUID

import uvicorn
from fastapi import Body, Depends, FastAPI, Header, HTTPException, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from mail import PROVIDER
from mail_server import MailServer
from operations import QUEUE, app, metadata
from windlass import AdmissionError, EnqueueError, IdempotencyConflict, Job, JobNotFound, NamedCall, State, acting_as
from workflows import (
    TYPES,
    Name,
    Stages,
    Unusable,
    check_known,
    check_type,
    read_workflows,
    run_workflow,
    save_workflow,
)

TOKENS = dict(pair.split(":", 1) for pair in os.environ.get("ATLAS_TOKENS", "acme:acme-demo,bolt:bolt-demo").split(","))
OPERATOR_TOKEN = os.environ.get("ATLAS_OPERATOR_TOKEN", "operator-demo")
EVERY = os.environ.get("ATLAS_EVERY", "15m")  # how often the scheduled workflows run
SCHEDULED = ("mail_report", "housekeeping")
REST = [type for type in TYPES if type not in ("EMAIL_SEND", "ENGINE_RUN")]
WORKERS = [["EMAIL_SEND"], ["ENGINE_RUN"], REST]  # the types of each worker
DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}

for tenant in TOKENS:
    for name in SCHEDULED:
        app.schedule(
            f"atlas {name} of {tenant}",
            run_workflow.options(tenant=tenant).call(name),
            every=EVERY,
            catch_up="one",  # of the ticks without any worker
            overlap="skip",  # while the last run has not ended: one waits, however long atlas is offline
        )


# The routes


class Order(BaseModel):
    job_type: Annotated[str, Field(alias="jobType")]
    input: dict[str, Any] = {}
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    max_retries: Annotated[int, Field(alias="maxRetries", ge=0, le=20)] = 3


async def tenant_of(authorization: Annotated[str, Header()] = "") -> str:
    """The tenant whose token it is."""
    given = authorization.removeprefix("Bearer ").encode()
    for tenant, token in TOKENS.items():
        if hmac.compare_digest(given, token.encode()):
            return tenant
    raise HTTPException(401, "give a token: Authorization: Bearer …")


async def operator(authorization: Annotated[str, Header()] = "") -> None:
    if not hmac.compare_digest(authorization.removeprefix("Bearer ").encode(), OPERATOR_TOKEN.encode()):
        raise HTTPException(401, "only the operator may do this")


@asynccontextmanager
async def open_tables(_: object = None) -> AsyncIterator[dict[str, AsyncEngine]]:
    """Make the tables that are missing. Requests find the engine in their state."""
    scheme, _, place = app.settings.url.partition("://")
    patience = {"timeout": 30} if scheme == "sqlite" else {}  # seconds for the one writer of a file
    engine = create_async_engine(f"{DRIVERS[scheme]}://{place}", connect_args=patience)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    yield {"engine": engine}
    await engine.dispose()


api = FastAPI(title="atlas", lifespan=app.lifespan(migrate=True, also=open_tables))  # runs no handler
Tenant = Annotated[str, Depends(tenant_of)]
by_operator = [Depends(operator)]


@api.exception_handler(Unusable)
@api.exception_handler(EnqueueError)
@api.exception_handler(AdmissionError)
async def refuse(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 409 if isinstance(error, IdempotencyConflict) else 422)


@api.post("/jobs", status_code=202)
async def create(
    order: Order, tenant: Tenant, request: Request, idempotency_key: Annotated[str | None, Header()] = None
) -> dict[str, Any]:
    check_type(order.job_type, where="the job")
    if order.job_type == "ENGINE_RUN":
        async with request.state.engine.connect() as connection:
            check_known(order.input, await read_workflows(connection, tenant))
    options = {"tenant": tenant, "priority": order.priority, "max_attempts": order.max_retries + 1}
    call = NamedCall(order.job_type, order.input, options)
    (job,) = await app.aenqueue_named([call], idempotency_key=idempotency_key)
    return view(await job.arecord())


@api.get("/jobs/{id}")
async def show(id: UUID, tenant: Tenant) -> dict[str, Any]:
    try:
        record = await (await app.afind(id)).arecord()
    except JobNotFound:
        record = None
    if record is None or record.tenant != tenant or record.type not in TYPES:
        raise HTTPException(404, "there is no such job")
    return view(record)


@api.get("/workflows")
async def show_workflows(tenant: Tenant, request: Request) -> dict[str, Stages]:
    async with request.state.engine.connect() as connection:
        return await read_workflows(connection, tenant)


@api.put("/workflows/{name}")
async def save(name: Name, stages: Stages, tenant: Tenant, request: Request) -> Stages:
    async with request.state.engine.begin() as connection:
        await save_workflow(connection, tenant, name, stages)
    return stages


@api.get("/audit")
async def show_audit(
    tenant: Tenant,
    action: Annotated[str | None, Query(pattern="^[A-Z_]+$")] = None,
    count: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> list[dict[str, Any]]:
    """How the tenant's jobs ended, newest first: EMAIL_SENT, JOB_SUCCEEDED, JOB_EXHAUSTED_RETRIES, JOB_DEAD, …"""
    rows = await app.aaudit(tenant=tenant, action=action, count=count)
    return [
        {"at": row.at, "action": row.action, "job": row.job, "jobType": row.type, "reason": row.reason} for row in rows
    ]


@api.get("/budget")
async def show_budget(tenant: Tenant) -> dict[str, Any]:
    """What the tenant's jobs may still cost; `{}`: it has no budget."""
    rows = [row for row in await app.abudgets() if (row.kind, row.name) == ("tenant", tenant)]
    return {"cents": rows[0].cents, "spent": rows[0].spent, "until": rows[0].until} if rows else {}


@api.put("/tenants/{name}/budget", dependencies=by_operator)
async def set_budget(
    name: str, cents: Annotated[int, Body(ge=0, le=10**9)], per: Annotated[str, Body()] = "day"
) -> dict[str, Any]:
    if name not in TOKENS:
        raise HTTPException(404, "there is no such tenant")
    with acting_as("operator"):
        await app.aset_budget(tenant=name, cents=cents, per=per)
    return {"cents": cents, "per": per}


@api.get("/online")
async def show_online() -> dict[str, bool]:
    closed = [(gate.kind, gate.name) for gate in await app.agates() if gate.is_closed]
    return {"online": ("queue", QUEUE) not in closed}


@api.put("/online", dependencies=by_operator)
async def switch(online: Annotated[bool, Body(embed=True)]) -> dict[str, bool]:
    """Offline, no job of atlas starts. Jobs that run finish, and jobs are still enqueued."""
    with acting_as("operator"):
        await (app.aresume(queue=QUEUE) if online else app.apause(queue=QUEUE, reason="atlas is offline"))
    return await show_online()


def view(record: Job) -> dict[str, Any]:
    """The job with the fields of the seed."""
    failure = record.failure()
    return {
        "id": record.id,
        "tenantId": record.tenant,
        "status": TYPES[record.type].label(record),
        "jobType": record.type,
        "priority": record.priority,
        "input": record.arguments(),
        "output": record.result() or {},
        "error": {"message": failure.message, "attemptedAt": failure.attempted_at} if failure else {},
        "costCents": record.cost_cents,
        "retryCount": record.retries,
        "maxRetries": record.max_attempts - 1,
        "nextRetryAt": record.run_at if record.status is State.FAILED else None,
        "startedAt": record.started_at,
        "finishedAt": record.finished_at,
        "createdAt": record.created_at,
    }


async def prepare() -> None:
    """Make every table before a worker starts."""
    await app.amigrate()
    async with open_tables():
        pass


@contextmanager
def workers() -> Iterator[None]:
    """One process for e-mail, one for the engine and one for the rest, until the block ends."""
    command = [sys.executable, "-m", "windlass", "worker", __file__]
    started = [
        # A terminal's Ctrl-C reaches a whole process group. A second signal would end the mails that are under way.
        subprocess.Popen([*command, *(f"--type={type}" for type in types)], process_group=0)
        for types in WORKERS
    ]
    try:
        yield
    finally:
        for worker in started:
            worker.terminate()
        for worker in started:
            worker.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # as Ctrl-C: the blocks below end, and the workers with them
    with ExitStack() as stack:
        if PROVIDER == "smtp" and "SMTP_URL" not in os.environ:
            os.environ["SMTP_URL"] = stack.enter_context(MailServer()).smtp
            print("SMTP_URL is not set: a stand-in takes the mails, and delivers none")
        asyncio.run(prepare())
        stack.enter_context(workers())
        uvicorn.run(api, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))

"""What the tests of the HTTP API need: a program, a server on a real socket, and clients with a token."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx2 as httpx
import pytest
from pydantic import TypeAdapter

from windlass import Context, Windlass, fixed, limit
from windlass.web.server import ApiServer, listen

PATIENCE = 60.0  # seconds until a story gives up; nothing here waits that long when it works
# The secret in the inputs and errors of the program. It has letters alone: the groups of errors leave digits out.
CANARY = "kqxcanary"
API = "/api/v1"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # shared: each client would load all certificates of the machine


def declare(app: Windlass) -> None:
    """The program of the stories."""

    @app.job(queue="mail", retry=fixed("1m"), max_attempts=2, limits=[limit("host", 1)])
    async def send(to: str, password: str = "", n: int = 1) -> dict[str, Any]:
        if to == "nowhere":
            raise ValueError(f"cannot log in at {to} with {password}")
        return {"to": to, "n": n, "token": password}

    @app.job
    async def approve(ctx: Context, who: str) -> str:
        answer: str = await ctx.wait_signal("answer")
        return f"{who}: {answer}"

    app.schedule("nightly", send.call("ann"), cron="0 3 * * *", tz="Europe/Berlin")


@cache
def analyse_types_once() -> None:
    """FastAPI makes a validator for each parameter of each route of each program: half of the time of these stories.

    The servers of a run share them. Another version of FastAPI may have no such name, and then nothing is shared.
    """
    made: dict[str, Any] = {}

    def shared(kind: Any, *, config: Any = None) -> Any:
        key = repr((kind, config))
        if key not in made:
            made[key] = TypeAdapter(kind, config=config)
        return made[key]

    pytest.MonkeyPatch().setattr("fastapi._compat.v2.TypeAdapter", shared, raising=False)


@dataclass
class Served:
    """A server that runs, and the clients that the test has made."""

    app: Windlass
    server: ApiServer
    port: int
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, token: str | None = None, **headers: str) -> httpx.AsyncClient:
        """A client whose paths begin after /api/v1."""
        sent = headers if token is None else {**headers, "authorization": f"Bearer {token}"}
        made = httpx.AsyncClient(base_url=self.origin + API, headers=sent, timeout=PATIENCE, verify=NO_TLS)
        self.clients.append(made)
        return made

    async def token(self, role: str = "operator", tenant: str | None = None, name: str | None = None) -> str:
        """The secret of a new token."""
        made = await self.app.acreate_token(name or f"{role}-{tenant or 'all'}", role=role, tenant=tenant)
        return made.secret


@asynccontextmanager
async def serving(
    app: Windlass, *, local: bool = False, hosts: tuple[str, ...] = (), root_path: str = ""
) -> AsyncIterator[Served]:
    """A server on a free port, on this test's loop."""
    analyse_types_once()
    server, socket = ApiServer(app, hosts=hosts, local=local, root_path=root_path), listen("127.0.0.1", 0)
    port = socket.getsockname()[1]
    running = asyncio.create_task(server._serve([socket]), name="server")
    served = Served(app, server, port)
    try:
        yield served
    finally:
        for client in served.clients:
            await client.aclose()
        server.should_exit = True
        async with asyncio.timeout(PATIENCE):
            await running


@dataclass
class Event:
    """A server-sent event as it was read."""

    kind: str
    data: Any
    id: str | None


async def events(response: httpx.Response) -> AsyncIterator[Event]:
    """The events of a stream, without its comments."""
    lines: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            lines[name] = value
        elif "event" in lines:
            yield Event(lines["event"], json.loads(lines["data"]), lines.get("id"))
            lines = {}
        else:
            lines = {}

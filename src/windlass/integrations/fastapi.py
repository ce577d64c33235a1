"""The integration with FastAPI: the server's `Windlass` as a dependency.

    api = FastAPI(lifespan=app.lifespan)

    @api.get("/jobs/{id}")
    async def status(id: UUID, jobs: Jobs) -> str:
        return await (await jobs.afind(id)).astatus()

In a test, `api.dependency_overrides[client] = lambda: other` replaces the app.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from windlass.app import Windlass
from windlass.errors import ConfigError


async def client(connection: HTTPConnection) -> Windlass:
    """The `Windlass` of this server's lifespan; for requests and web sockets."""
    found = getattr(connection.app.state, "windlass", None)
    if not isinstance(found, Windlass):
        raise ConfigError(
            "this server has no Windlass: make it with FastAPI(lifespan=app.lifespan), enter its lifespan (in a test: "
            "with TestClient(api) as client: …), or for an app mounted in another one: sub.state.windlass = app"
        )
    return found


Jobs = Annotated[Windlass, Depends(client)]
"""A parameter with this hint receives the app."""

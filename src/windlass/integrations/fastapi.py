"""FastAPI: the app of this server as a dependency.

    api = FastAPI(lifespan=app.lifespan)

    @api.get("/jobs/{id}")
    async def look(id: UUID, jobs: Jobs) -> str:
        return (await jobs.afind(id)).status()

In a test, `api.dependency_overrides[client] = lambda: other` puts another app in its place.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from windlass.app import Windlass
from windlass.errors import ConfigError


async def client(connection: HTTPConnection) -> Windlass:
    """The `Windlass` whose lifespan this server lives; for requests and web sockets."""
    found = getattr(connection.app.state, "windlass", None)
    if not isinstance(found, Windlass):
        raise ConfigError(
            "this server has no Windlass: make it with FastAPI(lifespan=app.lifespan), enter its lifespan (in a test: "
            "with TestClient(api) as client: …), or for an app mounted in another one: sub.state.windlass = app"
        )
    return found


Jobs = Annotated[Windlass, Depends(client)]
"""A parameter with this hint receives the app."""

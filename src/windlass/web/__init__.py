"""The HTTP API: what other programs and the dashboard call; the extra `web` installs what it needs.

`make_api(app)` is an ASGI program of its own, to serve or to mount. `make_router(app, caller=…)` is a router for a
FastAPI program that has its own authentication. docs/http.md describes both.
"""

from __future__ import annotations

from windlass.web.api import make_api, make_router
from windlass.web.caller import Caller

__all__ = ["Caller", "make_api", "make_router"]

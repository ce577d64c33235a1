"""The dashboard's files: one page for every address of it, and its modules and styles, with a strict content policy."""

from __future__ import annotations

import gzip
import hashlib
import html
import re
from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'self'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-cache",  # asked each time, answered with 304
}
PAGES = ("jobs", "errors", "queues", "schedules", "workers", "dead", "tenants", "audit", "tokens")

WORDLESS: Final = re.compile(rb"^[ \t]*+(?:/\*(?s:.*?)\*/$|//.*)?|(?<=[;,{}()\]]) // .*", re.MULTILINE)
"""What a browser does not need of scripts and styles: indents and comments."""

pages_router = APIRouter(include_in_schema=False)


def _read_files() -> dict[str, tuple[bytes, str]]:
    """Every file by its path, with its ETag. Only these are served: no path of a request reaches the file system."""
    found: dict[str, tuple[bytes, str]] = {}
    root = files("windlass.web") / "dashboard"
    for folder in ("", "core", "pages"):
        for each in (root / folder).iterdir() if folder else root.iterdir():
            if each.is_file():
                content = each.read_bytes()
                if each.name.endswith((".js", ".css")):
                    content = WORDLESS.sub(_lines_of, content)
                name = f"{folder}/{each.name}" if folder else each.name
                found[name] = content, f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return found


def _lines_of(found: re.Match[bytes]) -> bytes:
    """As many lines as were found: the line numbers of an error in the browser are those of the file."""
    return b"\n" * found[0].count(b"\n")


FILES = _read_files()


@pages_router.get("/assets/{name:path}")
async def read_asset(name: str, request: Request) -> Response:
    """A module, the styles or the icon."""
    kind = TYPES.get(name[name.rfind(".") :]) if name in FILES else None
    if kind is None:
        raise HTTPException(404, "there is no such file")
    content, tag = FILES[name]
    headers = {**HEADERS, "etag": tag, "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(_compressed(name), headers={**headers, "content-encoding": "gzip"}, media_type=kind)
    return Response(content, headers=headers, media_type=kind)


@cache
def _compressed(name: str) -> bytes:
    return gzip.compress(FILES[name][0], mtime=0)


@pages_router.get("/")
async def read_home(request: Request) -> Response:
    """The page. Its addresses are relative to where it is mounted."""
    return page(request)


def page(request: Request, status: int = 200) -> Response:
    """The page, also for an address that it has not: it says so, with a link home."""
    base = html.escape(request.scope.get("root_path", "").rstrip("/") + "/", quote=True)
    content = FILES["index.html"][0].decode().replace("{base}", base)
    return Response(content, status, headers=HEADERS, media_type="text/html; charset=utf-8")


for each in PAGES:
    pages_router.add_api_route(f"/{each}", read_home, include_in_schema=False)
pages_router.add_api_route("/jobs/{id:uuid}", read_home, include_in_schema=False)

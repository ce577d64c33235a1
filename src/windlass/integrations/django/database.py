"""The URL of one of the project's databases, made from DATABASES."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

PASSED_ON = ("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "target_session_attrs")
"""Options of psycopg that asyncpg also reads from a URL."""


def url_of(alias: str) -> str:
    """`postgresql://…` or `sqlite:///…`, from DATABASES as it is now: a test run changes the name."""
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        return _postgres(alias, settings.DATABASES[alias])
    if vendor != "sqlite":
        raise ImproperlyConfigured(
            f"DATABASES[{alias!r}] is {vendor}, and jobs are stored in PostgreSQL or SQLite; give them "
            'their own database: WINDLASS = {"URL": "postgresql://user@host/name"}'
        )
    if in_memory(alias):
        raise ImproperlyConfigured(
            f"DATABASES[{alias!r}] is a database in memory, which no worker can open; name a file. In a test run: "
            f'DATABASES[{alias!r}]["TEST"] = {{"NAME": BASE_DIR / "test.sqlite3"}}'
        )
    return f"sqlite:///{quote(str(settings.DATABASES[alias]['NAME']))}"


def in_memory(alias: str) -> bool:
    """Whether this is a SQLite database without a file. That of a test run is one by default."""
    name = str(settings.DATABASES[alias].get("NAME", ""))
    return connections[alias].vendor == "sqlite" and (name in ("", ":memory:") or "mode=memory" in name)


def _postgres(alias: str, given: dict[str, Any]) -> str:
    options = given.get("OPTIONS") or {}
    name = given.get("NAME") or ""
    if not name or "service" in options:
        raise ImproperlyConfigured(
            f"DATABASES[{alias!r}] names its database by a service, which only libpq can read; write the URL: "
            'WINDLASS = {"URL": "postgresql://user@host/name", "DATABASE": "' + alias + '"}'
        )
    user, password = quote(str(given.get("USER") or ""), safe=""), quote(str(given.get("PASSWORD") or ""), safe="")
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    host, port = str(given.get("HOST") or ""), str(given.get("PORT") or "")
    query = {key: str(options[key]) for key in PASSED_ON if key in options}
    if host.startswith("/"):  # a URL has no place for a socket's directory but the query
        query = {"host": host, **({"port": port} if port else {}), **query}
        address = ""
    else:
        bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
        address = f"{bracketed or ('localhost' if port else '')}{f':{port}' if port else ''}"
    tail = f"?{urlencode(query, quote_via=quote, safe='/')}" if query else ""
    return f"postgresql://{login}{address}/{quote(str(name), safe='')}{tail}"

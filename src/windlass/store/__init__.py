"""The stores: where a URL leads to."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from windlass.errors import ConfigError

if TYPE_CHECKING:
    from windlass.clock import Clock
    from windlass.config import Settings
    from windlass.store.migrate import Migrator
    from windlass.store.protocol import Store

SCHEMES = {"postgresql": "postgres", "postgres": "postgres", "sqlite": "sqlite"}


def dialect_of(url: str) -> str:
    """`postgres` or `sqlite`, by the URL's scheme."""
    scheme = url.partition("://")[0] if "://" in url else ""
    dialect = SCHEMES.get(scheme)
    if dialect is None:
        raise ConfigError(
            f"{masked(url)!r} is not a store Windlass knows; use postgresql://user@host/database or sqlite:///file.db"
        )
    return dialect


def make_store(settings: Settings, clock: Clock) -> Store:
    """The store for these settings; it opens nothing yet."""
    if dialect_of(settings.url) == "sqlite":
        from windlass.store.sqlite.store import SqliteStore

        return SqliteStore(settings.url, clock=clock)
    _require_asyncpg()
    from windlass.store.postgres.store import PostgresStore

    return PostgresStore(
        settings.url,
        clock=clock,
        connections=settings.connections,
        direct_url=settings.direct_url,
        pooler=settings.pooler,
    )


def make_migrator(settings: Settings) -> Migrator:
    """Who can bring this database's schema up to date."""
    if dialect_of(settings.url) == "sqlite":
        from windlass.store.sqlite.migrator import SqliteMigrator

        return SqliteMigrator(settings.url)
    _require_asyncpg()
    from windlass.store.postgres.migrator import PostgresMigrator

    return PostgresMigrator(settings.direct_url or settings.url)


def sqlite_location(url: str) -> str:
    """What a connection to this file says of itself; nothing is opened."""
    from windlass.store.sqlite.file import locate

    return f"sqlite:{os.path.realpath(locate(url))}"


def masked(url: str) -> str:
    """The URL as it may be printed: without its password."""
    url = re.sub(r"(://[^:/?#@]*):.*@", r"\1:…@", url)
    return re.sub(r"(?i)([?&](?:password|passfile|sslpassword)=)[^&]*", r"\1…", url)


def _require_asyncpg() -> None:
    try:
        import asyncpg  # noqa: F401
    except ImportError:
        raise ConfigError("PostgreSQL needs asyncpg; run: pip install 'windlass[postgres]'") from None

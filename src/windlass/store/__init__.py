"""The two stores, PostgreSQL and SQLite, with their SQL; the functions here make the one that a URL names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from windlass.address import masked, read_address
from windlass.broker_address import read_broker_address
from windlass.errors import ConfigError

if TYPE_CHECKING:
    from windlass.clock import Clock
    from windlass.config import Settings
    from windlass.store.migrate import Migrator
    from windlass.store.protocol import Store

__all__ = ["dialect_of", "make_migrator", "make_store", "masked", "sqlite_location"]


def dialect_of(url: str) -> str:
    """`postgres` or `sqlite`, by the URL's scheme."""
    return read_address(url).dialect


def make_store(settings: Settings, clock: Clock) -> Store:
    """The store for these settings; no connection is opened yet."""
    store = _make_database_store(settings, clock)
    if settings.rates is None:
        return store
    _require_redis()
    from windlass.transport.rated_store import RatedStore
    from windlass.transport.redis_rates import RedisRates

    return cast("Store", RatedStore(store, RedisRates(read_broker_address(settings.rates))))


def _make_database_store(settings: Settings, clock: Clock) -> Store:
    if dialect_of(settings.url) == "sqlite":
        from windlass.store.sqlite.store import SqliteStore

        return SqliteStore(settings.url, clock=clock, hold=settings.lease / 3, read_timeout=settings.read_timeout)
    _require_asyncpg()
    from windlass.store.postgres.store import PostgresStore

    return PostgresStore(
        settings.url,
        clock=clock,
        connections=settings.connections,
        direct_url=settings.direct_url,
        pooler=settings.pooler,
        read_timeout=settings.read_timeout,
    )


def make_migrator(settings: Settings) -> Migrator:
    """The migrator that brings this database's schema up to date."""
    if dialect_of(settings.url) == "sqlite":
        from windlass.store.sqlite.migrator import SqliteMigrator

        return SqliteMigrator(settings.url)
    _require_asyncpg()
    from windlass.store.postgres.migrator import PostgresMigrator

    return PostgresMigrator(settings.direct_url or settings.url)


def sqlite_location(url: str) -> str:
    """The location of this file, as `connection/location.py` reads it from a caller's connection; nothing is opened."""
    from windlass.store.sqlite.connections.file import locate

    return f"sqlite:{os.path.realpath(locate(url))}"


def _require_asyncpg() -> None:
    try:
        import asyncpg  # noqa: F401
    except ImportError:
        raise ConfigError("PostgreSQL needs asyncpg, which is not installed; run: pip install asyncpg") from None


def _require_redis() -> None:
    try:
        import redis  # noqa: F401
    except ImportError:
        raise ConfigError("rates in Redis need redis-py, which is not installed; run: pip install redis") from None

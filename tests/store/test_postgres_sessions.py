"""Sessions with PostgreSQL: what the driver knows of types is asked for once per process."""

from __future__ import annotations

from uuid import uuid4

import asyncpg
import pytest

from servers import postgres_database
from windlass.clock import SystemClock
from windlass.store.postgres.connections.pool import connect
from windlass.store.postgres.store import PostgresStore

pytestmark = pytest.mark.postgres

ARRAYS = "SELECT $1::uuid[], $2::float8[]"


async def test_the_second_session_asks_nothing_about_built_in_types(monkeypatch: pytest.MonkeyPatch) -> None:
    some, times = [uuid4()], [1.5]
    with postgres_database() as database:
        first = await connect(database.url)
        assert tuple(await first.fetchrow(ARRAYS, some, times)) == (some, times)
        await first.close()

        async def ask(*_: object) -> None:
            pytest.fail("the driver asked the server about types")

        monkeypatch.setattr(asyncpg.Connection, "_introspect_types", ask)
        second = await connect(database.url)
        assert tuple(await second.fetchrow(ARRAYS, some, times)) == (some, times)
        await second.close()


async def test_a_type_of_the_users_own_is_asked_for_in_every_database() -> None:
    """Its number may be another type's in the next database."""
    for values in (["small", "large"], ["red", "green"]):
        with postgres_database() as database:
            session = await connect(database.url)
            await session.execute(f"CREATE TYPE mine AS ENUM ({', '.join(map(repr, values))})")
            assert await session.fetchval("SELECT enum_range(NULL::mine)") == values
            await session.close()


async def test_a_transaction_whose_session_the_server_ended_closes_without_an_error() -> None:
    """The pool takes a connection back when the server ends it, and refuses to roll it back or to terminate it."""
    with postgres_database() as database:
        store = PostgresStore(database.url, clock=SystemClock())
        await store.open()
        async with store.transaction(limit=60.0) as transaction:
            (session,) = await transaction.fetch("SELECT pg_backend_pid() AS pid")
            await database.fetch("SELECT pg_terminate_backend($1, 60000)", session["pid"])
            with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
                await transaction.fetch("SELECT 1")
        assert await store.now()
        await store.close()

"""A pooler of transactions is in front of the database, declared or not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from servers import administer, named
from windlass import State, Windlass
from windlass.config import Settings
from windlass.errors import StoreUnavailable
from windlass.store import make_migrator, make_store
from windlass.store.migrate import newest
from windlass.store.postgres.connections.pool import SETTINGS

from .pooler import pooled
from .rig import FaultLab

LONG = {"WINDLASS_LEASE": "30s", "WINDLASS_BEAT": "0.5s"}


@pytest.fixture
def empty_database() -> Iterator[str]:
    """Without a schema, and with another isolation than the engine's."""
    name = f"windlass_test_{uuid4().hex[:12]}"
    administer(f"CREATE DATABASE {name}")
    administer(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    yield named(name)
    administer(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("declared", [{"pooler": "transaction"}, {}], ids=["declared", "undeclared"])
def test_migrations_go_through_a_pooler(empty_database: str, declared: dict[str, Any]) -> None:
    with pooled(empty_database) as pooler:
        settings = Settings.load({}, url=pooler.url, **declared)

        assert [step.number for step in asyncio.run(make_migrator(settings).migrate())][-1] == newest("postgres")
        assert asyncio.run(make_migrator(settings).current()) == newest("postgres")


def test_work_goes_through_a_pooler_that_was_declared(postgres_lab: FaultLab) -> None:
    lab = postgres_lab
    with pooled(lab.url) as pooler:
        jobs = lab.enqueue("effect", 10) + lab.enqueue("plain", 10)
        workers = [lab.start(WINDLASS_URL=pooler.url, WINDLASS_POOLER="transaction", **LONG) for _ in range(2)]
        lab.until_final(jobs)

        assert lab.counts() == {State.SUCCEEDED: len(jobs)}
        lab.check_effects(jobs[:10])
        asyncio.run(prune(pooler.url))
        for worker in workers:
            assert worker.ended() is None
            assert "beat:" not in worker.output()


async def prune(url: str) -> None:
    """Partitions are prepared inside the transaction that the pooler asks for, and that is READ COMMITTED."""
    settings = Settings.load({}, url=url, pooler="transaction")
    name = urlsplit(url).path.strip("/")
    administer(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    store: Any = make_store(settings, Windlass().clock)
    await store.open()
    try:
        await store._execute("DROP TABLE windlass.history_" + await store._value(TOMORROW))
        await store.prune(history=60.0, audit=60.0)
        assert await store._value(
            "SELECT to_regclass($1) IS NOT NULL", "windlass.history_" + await store._value(TOMORROW)
        )
        assert await store._value("SHOW transaction_isolation") == "read committed"
    finally:
        await store.close()


TOMORROW = "SELECT to_char((windlass.now() AT TIME ZONE 'UTC')::date + 1, 'YYYYMMDD')"


def test_a_pooler_that_refuses_our_settings_is_named(postgres_lab: FaultLab) -> None:
    with pooled(postgres_lab.url) as pooler:
        app = Windlass(pooler.url)
        with pytest.raises(StoreUnavailable, match=r"a pooler is in front of .*WINDLASS_POOLER=transaction"):
            app.counts()
        app.close()


def test_a_pooler_that_says_nothing_is_recognised_and_worked_with(postgres_lab: FaultLab) -> None:
    lab = postgres_lab
    with pooled(lab.url, ignores={*SETTINGS, "application_name"}) as pooler:
        jobs = lab.enqueue("effect", 10) + lab.enqueue("plain", 10)
        workers = [lab.start(WINDLASS_URL=pooler.url, **LONG) for _ in range(2)]
        lab.until_final(jobs)

        assert lab.counts() == {State.SUCCEEDED: len(jobs)}
        lab.until(lambda: all("and was not declared" in worker.output() for worker in workers), "they say so")
        for worker in workers:
            assert len(worker.output().splitlines()) == 1, worker.output()
            assert "WINDLASS_POOLER=transaction" in worker.output()

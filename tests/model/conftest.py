"""A machine needs a bench, and a bench the rig of the contract suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.conftest import postgres_rig, sqlite_rig
from windlass.store.postgres.store import PostgresStore
from windlass.store.sqlite.store import SqliteStore

from .bench import Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from windlass.clock import Clock
    from windlass.store.protocol import Store

    OpenBench = Callable[..., Bench]

__all__ = ["bench_on"]


def make_sqlite(url: str, clock: Clock) -> Store:
    return SqliteStore(url, clock=clock)


def make_postgres(url: str, clock: Clock) -> Store:
    return PostgresStore(url, clock=clock)


@pytest.fixture
def bench_on(tmp_path: Path) -> Iterator[OpenBench]:
    """Opens a bench on a dialect, with the store of that dialect or a broken form of it."""
    opened: list[Bench] = []

    def open_bench(dialect: str, make_store: Callable[[str, Clock], Store] | None = None) -> Bench:
        if dialect == "sqlite":
            bench = Bench(sqlite_rig(tmp_path / "jobs.db"), make_store or make_sqlite)
        else:
            bench = Bench(postgres_rig(), make_store or make_postgres)
        opened.append(bench)
        return bench

    yield open_bench
    for bench in opened:
        bench.close()

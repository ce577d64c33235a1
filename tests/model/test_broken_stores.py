"""The machine is worth something: it catches every store that is wrong on purpose (T62)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.rig import TYPE, new_job
from windlass.store.postgres.store import PostgresStore
from windlass.store.protocol import Claim

from .broken_stores import (
    CarelessRescue,
    FloorWithoutRescan,
    ForgetfulSweep,
    LeakyTransaction,
    SharedClaim,
    UnfencedFinish,
    UnfencedTransaction,
)
from .running import run_until_caught

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.clock import Clock
    from windlass.store.sqlite.store import SqliteStore

    from .bench import Bench
    from .conftest import OpenBench

BROKEN = [
    pytest.param(UnfencedFinish, "^I3: ", id="a finish by id only"),
    pytest.param(UnfencedTransaction, "^I[23]: ", id="a transaction that does not look at its lease"),
    pytest.param(LeakyTransaction, "^I[123]: ", id="a transaction that commits what it should undo"),
    pytest.param(CarelessRescue, "^rescue: ", id="a rescue from the living"),
    pytest.param(SharedClaim, "^claim: ", id="a claim of a held job"),
    pytest.param(ForgetfulSweep, "^I1: ", id="a sweep that throws jobs away"),
]


@pytest.mark.parametrize(("broken", "promise"), BROKEN)
def test_a_broken_store_is_caught(bench_on: OpenBench, broken: type[SqliteStore], promise: str) -> None:
    def make(url: str, clock: Clock) -> SqliteStore:
        return broken(url, clock=clock)

    with pytest.raises(AssertionError, match=promise):
        run_until_caught(bench_on("sqlite", make))


def test_a_floor_without_rescan_is_caught(bench_on: OpenBench) -> None:
    with pytest.raises(AssertionError, match=r"^(I4|claim): "):
        run_until_caught(bench_on("postgres", floor_without_rescan))


def test_a_job_that_committed_late_is_found_by_the_rescan(bench_on: OpenBench) -> None:
    late, found = a_late_commit(bench_on("postgres"))

    assert found == [late]


def test_a_job_that_committed_late_is_lost_without_the_rescan(bench_on: OpenBench) -> None:
    _, found = a_late_commit(bench_on("postgres", floor_without_rescan))

    assert found == []


def floor_without_rescan(url: str, clock: Clock) -> PostgresStore:
    return FloorWithoutRescan(url, clock=clock)


def a_late_commit(bench: Bench) -> tuple[UUID, list[UUID]]:
    """A job that was enqueued before another one and commits after that was claimed; and what a rescan finds then."""
    bench.begin()
    store, worker = bench.stores[0], bench.do(bench.rig.register())
    late, swift = new_job(), new_job()

    async def story() -> list[UUID]:
        claim = Claim(worker=worker, room=10, types=(TYPE,), rescan=True)
        async with store.transaction(limit=60.0) as transaction:
            await transaction.enqueue([late])
            bench.clock.advance(5)
            await bench.rig.run(f"UPDATE windlass.test_clock SET now = '{bench.clock.now().isoformat()}'")
            await store.enqueue([swift])
            assert [job.id for job in (await store.claim(claim)).jobs] == [swift.id]
            await transaction.commit()
        return [job.id for job in (await store.claim(claim)).jobs]

    try:
        return late.id, bench.do(story())
    finally:
        bench.end()

"""Jobs that a claim skips because a key is full: left where they are while it is busy, parked before it rests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.errors import StoreUnavailable
from windlass.model.state import State, Verb
from windlass.store.postgres import store as postgres
from windlass.store.postgres.claim import PARK_EVERY

from .admissions import end_all, full, limit, used, waiting

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.model.job import Job

    from .rig import Rig

FULL = "domain:a"


async def busy(rig: Rig) -> Job:
    """A key is full, and a worker's last claim brought as many as it asked for: the job that holds the slot."""
    holder, _ = await full(rig, FULL, behind=0)
    await rig.store.declare([limit("domain")])
    await others(rig, 2)
    await end_all(rig, await rig.claim(room=2))
    return holder


async def others(rig: Rig, count: int) -> list[UUID]:
    """Jobs of keys that have room."""
    await rig.advance(1)
    return [await rig.enqueue(limits=(f"domain:{n}",)) for n in range(count)]


async def past(rig: Rig, count: int) -> list[UUID]:
    """Jobs of the full key, ahead of all that come later."""
    await rig.advance(1)
    return [await rig.enqueue(limits=(FULL,)) for _ in range(count)]


async def claim(rig: Rig, room: int) -> list[UUID]:
    """As a worker does between two rescans."""
    return [job.id for job in await rig.claim(room=room, rescan=False)]


async def test_a_full_claim_does_not_touch_the_jobs_it_skips(rig: Rig) -> None:
    if rig.dialect == "sqlite":
        pytest.skip("a file's claim parks at once: it has the only lock and writes nothing twice")
    await busy(rig)
    await past(rig, 5)
    free = await others(rig, 8)

    assert await claim(rig, 4) == free[:4]
    assert await waiting(rig, FULL) == 0

    assert await claim(rig, 10) == free[4:]
    assert await waiting(rig, FULL) == 5


async def test_a_job_that_a_full_claim_skipped_is_first_when_the_slot_is_released(rig: Rig) -> None:
    holder = await busy(rig)
    passed = await past(rig, 3)
    free = await others(rig, 8)
    assert await claim(rig, 4) == free[:4]

    await rig.finish(holder, Verb.SUCCEED)

    assert (await claim(rig, 2))[0] == passed[0]
    assert await used(rig, FULL) == 1


async def test_now_and_then_a_full_claim_parks_the_jobs_it_skipped(rig: Rig) -> None:
    await busy(rig)
    await past(rig, 5)
    await others(rig, 2 * PARK_EVERY)

    for _ in range(PARK_EVERY):
        assert len(await claim(rig, 1)) == 1

    assert await waiting(rig, FULL) == 5


async def test_a_parked_job_is_unparked_by_the_slot_that_is_released(rig: Rig) -> None:
    holder = await busy(rig)
    passed = await past(rig, 3)
    assert await claim(rig, 10) == []
    assert await waiting(rig, FULL) == 3

    await rig.finish(holder, Verb.SUCCEED)

    assert await claim(rig, 10) == [passed[0]]


async def test_a_process_that_dies_before_it_unparks_a_job_costs_a_rescan(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot is released and committed; no worker was woken."""
    if rig.dialect == "sqlite":
        pytest.skip("a file's finish unparks jobs in its own transaction")

    async def dies(connection: object, keys: object) -> set[str]:
        raise StoreUnavailable("the connection is gone")

    holder, (first, *_) = await full(rig, FULL)
    monkeypatch.setattr(postgres, "unpark", dies)

    assert await rig.finish(holder, Verb.SUCCEED) is State.SUCCEEDED
    assert await claim(rig, 10) == []

    assert [job.id for job in await rig.claim()] == [first]

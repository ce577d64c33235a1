"""A hundred thousand jobs that cannot run, ahead of one that can: it is found by the next claim."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from windlass.model.admission import GateKind, GateState
from windlass.model.state import Verb

from .admissions import crowd, full, in_time, limit, waiting
from .rig import new_job

if TYPE_CHECKING:
    from .rig import Rig

pytestmark = pytest.mark.slow  # thousands of jobs

MANY = 20_000  # many times what a claim reads

FREE: dict[str, dict[str, Any]] = {"without limits": {}, "of another key": {"limits": ("domain:b",)}}


async def look(rig: Rig) -> list[Any]:
    """A claim with its rescan; prints how long it took, for the reader of the output."""
    began = time.perf_counter()
    (jobs,) = await in_time(rig.claim(room=10))
    print(f"{rig.dialect}: {len(jobs)} claimed in {1000 * (time.perf_counter() - began):,.0f} ms")
    return [job.id for job in jobs]


@pytest.mark.parametrize("free", FREE)
async def test_a_full_key_hides_nobody(rig: Rig, free: str) -> None:
    holder, _ = await full(rig, behind=0)
    await crowd(rig, MANY, limits=("domain:a",))
    await rig.advance(1)
    last = await rig.enqueue(**FREE[free])

    assert await look(rig) == [last]

    later = await rig.enqueue(**FREE[free])
    if free == "without limits":
        assert await look(rig) == [later]
    await rig.finish(holder, Verb.SUCCEED)
    (first, *_) = await look(rig)
    assert (await rig.find(first)).limits == ["domain:a"]


async def test_a_type_that_nobody_here_knows_hides_nobody(rig: Rig) -> None:
    await crowd(rig, MANY, type="report.make")
    await rig.advance(1)
    last = await rig.enqueue()

    assert await look(rig) == [last]


async def test_a_limited_type_that_nobody_here_knows_hides_nobody(rig: Rig) -> None:
    await rig.store.declare([limit("domain")])
    await crowd(rig, MANY, type="report.make", limits=("domain:a",))
    await rig.advance(1)
    last = await rig.enqueue(limits=("domain:a",))

    assert await look(rig) == [last]


async def test_a_paused_tenant_hides_nobody(rig: Rig) -> None:
    await crowd(rig, MANY, tenant="loud")
    await rig.advance(1)
    last = await rig.enqueue(tenant="quiet")
    await rig.store.set_gate(GateKind.TENANT, "loud", GateState.PAUSED)

    assert await look(rig) == [last]


async def test_a_crowd_is_parked_in_the_end_and_let_in_one_by_one(rig: Rig) -> None:
    holder, _ = await full(rig, behind=0)
    await crowd(rig, MANY, limits=("domain:a",))
    for _ in range(60):
        await rig.claim(room=10)
        if await waiting(rig, "domain:a") == MANY:
            break
    assert await waiting(rig, "domain:a") == MANY

    await rig.finish(holder, Verb.SUCCEED)
    assert await look(rig) != []


async def test_many_full_keys_hide_nobody(rig: Rig) -> None:
    await rig.store.declare([limit("domain")])
    keys = [f"domain:{n}" for n in range(500)]
    await rig.store.enqueue([new_job(limits=(key,)) for key in keys])
    held = [job for _ in range(20) for job in await rig.claim(room=100)]
    assert len(held) == len(keys)
    for _ in range(10):
        await rig.store.enqueue([new_job(limits=(key,)) for key in keys])
    await rig.advance(1)
    last = await rig.enqueue(limits=("domain:new",))

    assert await look(rig) == [last]

"""Gates: operators close and open them, claims keep to them, and the audit has the actor and the reason."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import product
from typing import TYPE_CHECKING

import pytest

from windlass.model.admission import Budget, Closure, Gate, GateKind, GateState
from windlass.model.state import State, Verb
from windlass.store.parts.messages import WAKE_GATES

from .admissions import PATIENCE, drain, full, limit, nothing_is_left
from .rig import TYPE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .rig import Rig

OPEN, PAUSED, DRAINING = GateState.OPEN, GateState.PAUSED, GateState.DRAINING
SHUT = [PAUSED, DRAINING]
GATES = [(GateKind.ALL, ""), (GateKind.QUEUE, "mail"), (GateKind.TYPE, TYPE), (GateKind.TENANT, "acme")]


@pytest.mark.parametrize(("kind", "name"), GATES)
async def test_a_shut_gate_keeps_its_jobs_and_an_open_one_lets_them_go(rig: Rig, kind: GateKind, name: str) -> None:
    await rig.store.declare([limit("domain", 20)])
    for limits, state, by_creation in product([(), ("domain:a",)], SHUT, [False, True]):
        case = (limits, state, by_creation)
        mine = await rig.enqueue(queue="mail", tenant="acme", limits=limits)
        other = await rig.enqueue(queue="pages", tenant="else", type="other", limits=limits)

        await rig.store.set_gate(kind, name, state)
        through = [job.id for job in await rig.claim(types=(TYPE, "other"), aged=1, by_creation=by_creation)]
        await rig.store.set_gate(kind, name, OPEN)
        later = [job.id for job in await rig.claim(types=(TYPE, "other"), by_creation=by_creation)]

        assert through == ([] if kind is GateKind.ALL else [other]), case
        assert sorted(through + later) == sorted([mine, other]), case


async def test_a_gate_is_told_with_reason_actor_and_time(rig: Rig) -> None:
    await rig.store.set_gate(GateKind.QUEUE, "mail", PAUSED, reason="the provider is down", actor="ann")
    since = rig.clock.now()
    await rig.advance(60)

    (gate,) = await rig.store.gates()

    assert gate == Gate(
        kind=GateKind.QUEUE, name="mail", state=PAUSED, reason="the provider is down", actor="ann", since=since
    )


async def test_shut_gates_come_before_open_ones(rig: Rig) -> None:
    await rig.store.set_gate(GateKind.ALL, "", PAUSED)
    await rig.store.set_gate(GateKind.ALL, "", OPEN, actor="ann")
    await rig.store.set_gate(GateKind.TENANT, "acme", DRAINING)
    await rig.store.set_gate(GateKind.TYPE, TYPE, PAUSED)

    gates = await rig.store.gates()

    assert {(gate.kind, gate.name) for gate in gates[:2]} == {(GateKind.TENANT, "acme"), (GateKind.TYPE, TYPE)}
    assert [(gate.kind, gate.state, gate.actor) for gate in gates[2:]] == [(GateKind.ALL, OPEN, "ann")]


async def test_a_gate_that_is_shut_again_keeps_its_time(rig: Rig) -> None:
    await rig.store.set_gate(GateKind.ALL, "", PAUSED, reason="first")
    first = rig.clock.now()
    await rig.advance(60)
    await rig.store.set_gate(GateKind.ALL, "", PAUSED, reason="second")
    (again,) = await rig.store.gates()
    await rig.store.set_gate(GateKind.ALL, "", DRAINING)
    (other,) = await rig.store.gates()

    assert (again.since, again.reason) == (first, "second")
    assert other.since == first + timedelta(seconds=60)


async def test_the_actor_of_a_gate_is_in_the_audit(rig: Rig) -> None:
    await rig.store.set_gate(GateKind.QUEUE, "mail", PAUSED, reason="the provider is down", actor="ann")
    await rig.store.set_gate(GateKind.QUEUE, "mail", DRAINING)
    await rig.store.set_gate(GateKind.ALL, "", OPEN, actor="bob")

    rows = await rig.store.audit()

    assert [(row.action, row.subject, row.actor, row.reason) for row in rows] == [
        ("GATE_RESUMED", "all", "bob", None),
        ("GATE_DRAINED", "queue:mail", None, None),
        ("GATE_PAUSED", "queue:mail", "ann", "the provider is down"),
    ]
    assert {(row.job, row.type, row.queue, row.tenant) for row in rows} == {(None, None, None, None)}
    assert [row.actor for row in await rig.store.audit(action="GATE_PAUSED")] == ["ann"]


async def test_closed_gates_are_reported_to_workers(rig: Rig) -> None:
    for kind, name in GATES:
        await rig.store.set_gate(kind, name, PAUSED)
    await rig.store.set_gate(GateKind.QUEUE, "pages", DRAINING)
    await rig.store.set_gate(GateKind.TENANT, "acme", OPEN)

    closures = await rig.store.closures()

    assert sorted(closures, key=lambda each: (each.kind, each.name)) == [
        Closure(kind="all", name="", state="paused"),
        Closure(kind="queue", name="mail", state="paused"),
        Closure(kind="queue", name="pages", state="draining"),
        Closure(kind="type", name=TYPE, state="paused"),
    ]


@pytest.mark.parametrize(("state", "expected"), [(PAUSED, {WAKE_GATES}), (OPEN, {WAKE_GATES, "*"})])
async def test_workers_are_told_at_once(rig: Rig, state: GateState, expected: set[str]) -> None:
    heard: set[str] = set()

    async def listen(messages: AsyncIterator[str]) -> None:
        async for message in messages:
            heard.add(message)
            if expected <= heard:
                return

    async with rig.store.wakeups() as messages:
        await rig.store.set_gate(GateKind.ALL, "", state)
        async with asyncio.timeout(PATIENCE):
            await listen(messages)


async def test_what_runs_behind_a_shut_gate_ends_as_ever(rig: Rig) -> None:
    first, second = await rig.held(), await rig.held()
    await rig.store.set_gate(GateKind.ALL, "", PAUSED)

    assert await rig.finish(first, Verb.SUCCEED) is State.SUCCEEDED
    assert await rig.finish(second, Verb.RELEASE, delay=None) is State.QUEUED

    assert await rig.claim() == []
    await rig.store.set_gate(GateKind.ALL, "", OPEN)
    assert [job.id for job in await rig.claim()] == [second.id]


async def test_jobs_are_rescued_behind_a_shut_gate_and_stay_there(rig: Rig) -> None:
    job = await rig.held()
    await rig.store.set_gate(GateKind.ALL, "", PAUSED)
    await rig.die(rig.worker)

    assert (await rig.store.sweep(max_crashes=3)).rescued == 1

    rig.worker = await rig.register()
    assert await rig.claim() == []
    await rig.store.set_gate(GateKind.ALL, "", OPEN)
    assert [each.id for each in await rig.claim()] == [job.id]


async def test_a_job_behind_a_gate_does_not_keep_a_slot_from_others(rig: Rig) -> None:
    """The first at a full key is of a shut queue: the slot that comes back goes to the next."""
    holder, behind_the_gate = await full(rig, queue="mail", behind=2)
    await rig.advance(1)
    other = await rig.enqueue(limits=("domain:a",), queue="pages")
    assert await rig.claim() == []
    await rig.store.set_gate(GateKind.QUEUE, "mail", PAUSED)

    await rig.finish(holder, Verb.SUCCEED)
    claimed = [job for _ in range(2) for job in await rig.claim()]

    assert [job.id for job in claimed] == [other]
    await rig.finish(claimed[0], Verb.SUCCEED)
    assert await rig.claim() == []
    await rig.store.set_gate(GateKind.QUEUE, "mail", OPEN)
    assert await drain(rig, rounds=4) == behind_the_gate
    await nothing_is_left(rig)


async def test_a_tenant_with_a_spent_budget_does_not_keep_a_slot_from_others(rig: Rig) -> None:
    holder, behind_the_budget = await full(rig, tenant="acme", behind=5)
    await rig.advance(1)
    other = await rig.enqueue(limits=("domain:a",), tenant="else")
    assert await rig.claim() == []
    await rig.store.set_budget(Budget(kind="tenant", name="acme", cents=0, seconds=60.0))

    await rig.finish(holder, Verb.SUCCEED)
    claimed = [job for _ in range(2) for job in await rig.claim()]

    assert [job.id for job in claimed] == [other]
    await rig.finish(claimed[0], Verb.SUCCEED)
    await rig.store.drop_budget("tenant", "acme")
    assert await drain(rig, rounds=7) == behind_the_budget


async def test_jobs_of_a_queue_that_nobody_serves_do_not_keep_a_slot_from_others(rig: Rig) -> None:
    """Two queues share a key, and the workers of one of them are gone."""
    holder, unserved = await full(rig, queue="mail", behind=5)
    await rig.advance(1)
    other = await rig.enqueue(limits=("domain:a",), queue="pages")
    assert await rig.claim() == []
    await rig.finish(holder, Verb.FAIL, delay=1_000.0, attempt=1)
    await rig.store.deregister(rig.worker)
    rig.worker = await rig.register(queues=("pages",))

    claimed = [job for _ in range(2) for job in await rig.claim(queues=("pages",))]

    assert [job.id for job in claimed] == [other]
    await rig.finish(claimed[0], Verb.SUCCEED)
    rig.worker = await rig.register()
    assert await drain(rig, rounds=7) == unserved


async def test_a_gate_of_one_tenant_is_not_one_of_others(rig: Rig) -> None:
    await rig.enqueue_many(20, tenant="acme")
    others = [await rig.enqueue(tenant=f"tenant {n}") for n in range(3)]
    await rig.store.set_gate(GateKind.TENANT, "acme", PAUSED)

    assert {job.id for job in await rig.claim(room=5)} == set(others)

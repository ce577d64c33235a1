"""Helpers for the tests of the flow: parents and children, waits, and the ways in which an awaited job can end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from windlass.model.flow import Flow, Spawn
from windlass.model.job import Edge, Key, NewJob, Policy, Wait, new_id
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb

from .rig import alone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from windlass.model.job import Job
    from windlass.store.protocol import Store

    from .rig import Rig

    BadEnd = Callable[[Rig, UUID], Awaitable[None]]

LIMIT = 10.0  # seconds of a transaction
REFUSING = ("queued", "running", "succeeded", "failed", "waiting")  # a unique key's default: all but dead and cancelled


# Waits and edges


def waiting_for(
    *awaited: UUID | NewJob, need: int | None = None, policy: Policy = Policy.COUNT, **options: Any
) -> Wait:
    """A wait for jobs; for all of them unless `need` is given."""
    ids = [each.id if isinstance(each, NewJob) else each for each in awaited]
    edges = tuple(Edge(each, policy) for each in ids)
    return Wait(edges=edges, need=len(edges) if need is None else need, **options)


def spawning(*children: NewJob) -> tuple[Spawn, ...]:
    return tuple(Spawn(name=f"child-{number}", job=child) for number, child in enumerate(children))


def fan_out(*children: NewJob, need: int | None = None, **options: Any) -> Flow:
    """Spawn the children and wait for them."""
    return Flow(spawns=spawning(*children), wait=waiting_for(*children, need=need, **options))


def unique(key: str = "one", **options: Any) -> Key:
    defaults: dict[str, Any] = {"scope": "unique/default/mail.send", "key": key, "states": REFUSING}
    return Key(**(defaults | options))


def idempotency(key: str = "one", **options: Any) -> Key:
    defaults: dict[str, Any] = {"scope": "idempotency/default", "key": key, "window": 86_400.0, "fingerprint": "f"}
    return Key(**(defaults | options))


# Given


async def family(rig: Rig, count: int, *, need: int | None = None, **options: Any) -> tuple[UUID, list[UUID]]:
    """A waiting parent and its children, all of them queued."""
    parent = await rig.running()
    children = [alone(parent=parent.id) for _ in range(count)]
    flow = fan_out(*children, need=need, **options)
    assert await rig.finish(parent, Verb.WAIT, flow=flow) is State.WAITING
    return parent.id, [child.id for child in children]


async def waiter(rig: Rig, *awaited: UUID, **options: Any) -> UUID:
    """A job that waits for others which existed already."""
    job = await rig.running()
    assert await rig.finish(job, Verb.WAIT, flow=Flow(wait=waiting_for(*awaited, **options))) is State.WAITING
    return job.id


async def node(rig: Rig, *awaited: UUID, policy: Policy = Policy.FAIL, **options: Any) -> UUID:
    """A graph's node, declared ahead."""
    job = alone(wait=waiting_for(*awaited, policy=policy), **options)
    assert await rig.store.enqueue([job]) == {}
    return job.id


# When


async def end(rig: Rig, job: UUID, verb: Verb = Verb.SUCCEED, **options: Any) -> State | None:
    """The job is claimed and its attempt ends."""
    return await rig.finish(await rig.take(job), verb, **options)


async def end_in_batch(store: Store, jobs: Sequence[Job], verb: Verb = Verb.SUCCEED) -> None:
    finished = await store.finish([Transition(lease=job.lease, verb=verb, followed=job.followed) for job in jobs])
    assert finished.lost == frozenset()


async def die(rig: Rig, job: UUID) -> None:
    await end(rig, job, Verb.BURY, reason="permanent")


async def be_cancelled(rig: Rig, job: UUID) -> None:
    await rig.store.operate(Verb.CANCEL, job)


async def be_stopped(rig: Rig, job: UUID) -> None:
    running = await rig.take(job)
    await rig.store.operate(Verb.CANCEL, job)
    await rig.finish(running, Verb.STOP)


async def fail_after_a_cancel(rig: Rig, job: UUID) -> None:
    running = await rig.take(job)
    await rig.store.operate(Verb.CANCEL, job)
    assert await rig.finish(running, Verb.FAIL, delay=10.0, attempt=1) is State.CANCELLED


async def die_by_crashes(rig: Rig, job: UUID) -> None:
    """Its worker dies once too often."""
    await rig.take(job)
    await rig.die(rig.worker)
    assert (await rig.store.sweep(max_crashes=1)).dead_after_crashes == 1
    rig.worker = await rig.register()


async def be_rescued_after_a_cancel(rig: Rig, job: UUID) -> None:
    await rig.take(job)
    await rig.store.operate(Verb.CANCEL, job)
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    rig.worker = await rig.register()


BAD_ENDS: dict[str, BadEnd] = {
    "dead": die,
    "cancelled": be_cancelled,
    "stopped": be_stopped,
    "failed after a cancel": fail_after_a_cancel,
    "condemned": die_by_crashes,
    "rescued after a cancel": be_rescued_after_a_cancel,
}


async def be_discarded(rig: Rig, job: UUID) -> None:
    await die(rig, job)
    assert await rig.store.operate(Verb.DISCARD, job) is None


async def one_that_ended(rig: Rig, kind: str) -> UUID:
    """A job that is over: the name of a final state, `discarded`, or `unknown`."""
    if kind == "unknown":
        return new_id()
    if kind != "discarded":
        return await rig.job_in(State(kind), priority=0)
    job = alone()
    await rig.store.enqueue([job])
    await be_discarded(rig, job.id)
    return job.id


# Then


async def holder(rig: Rig, **keys: Key) -> UUID | None:
    """The job that refuses another one with these keys; None, and the key is taken, when nothing does."""
    job = alone(**keys)
    answer = await rig.store.enqueue([job])
    assert set(answer) <= {job.id}
    assert (await rig.store.find(job.id) is None) == bool(answer)
    return answer.get(job.id)


async def is_woken(rig: Rig, job: UUID) -> bool:
    """Queued, due now, and without a lease."""
    found = await rig.find(job)
    return (found.status, found.run_at, found.token) == (State.QUEUED, rig.clock.now(), None)


def decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)

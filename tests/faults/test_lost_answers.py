"""The connection breaks between a commit and its answer: the worker must find out, and nothing may be stuck."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from windlass import State
from windlass.clock import SystemClock
from windlass.errors import StoreUnavailable
from windlass.model.job import Job, Lease, new_id
from windlass.model.outcome import Transition
from windlass.model.state import Verb
from windlass.runtime.completer import Completer
from windlass.runtime.duties.closures import Closures
from windlass.runtime.leases import Leases
from windlass.runtime.signals import WorkerSignals
from windlass.store.contact import Contact
from windlass.store.protocol import Finished

from .rig import FaultLab


@pytest.mark.parametrize("point", ["claim.committed", "finish.committed", "transaction.committed"])
def test_a_lost_answer_leaves_no_job_behind(lab: FaultLab, point: str) -> None:
    jobs = lab.enqueue("effect", 20) + lab.enqueue("plain", 20)
    worker = lab.start("--concurrency", "3", FAULT_LOSE=point)

    lab.until_final(jobs)

    assert lab.counts() == {State.SUCCEEDED: len(jobs)}
    assert worker.ended() is None
    lab.check_effects(jobs[:20])


@pytest.mark.parametrize("point", ["finish.before", "beat.before"])
def test_a_fault_of_the_engine_itself_stops_nothing(postgres_lab: FaultLab, point: str) -> None:
    lab = postgres_lab
    worker = lab.start("--concurrency", "3", WINDLASS_FAILPOINTS=f"{point}=raise@0.5")
    jobs = lab.enqueue("plain", 6, seconds=1.0)  # two rounds of three: longer than a lease

    lab.until_final(jobs)

    assert lab.counts() == {State.SUCCEEDED: len(jobs)}
    assert worker.ended() is None


async def test_a_finish_that_outlives_its_lease_does_not_take_the_next_lease_along() -> None:
    job = new_id()
    first, second = Lease(job, uuid4(), 1), Lease(job, uuid4(), 2)
    store = SlowStore(current=first)
    leases = Leases()
    clock = SystemClock()
    parts = {"leases": leases, "store": store, "clock": clock, "contact": Contact(clock), "closures": Closures()}
    state = cast(Any, SimpleNamespace(**parts, subscribers=[], signals=WorkerSignals()))
    completer = Completer(state)
    running = asyncio.create_task(completer.run())
    hold(leases, first)
    completer.submit(Transition(lease=first, verb=Verb.SUCCEED))
    await store.asked.wait()

    completer.forget()  # the lease is lost, the worker registers anew and claims the same job again
    leases.drop_all()
    store.current = second
    hold(leases, second)
    store.back.set()
    completer.submit(Transition(lease=second, verb=Verb.SUCCEED))
    await completer.drained()

    running.cancel()
    assert store.finished == [second]


class SlowStore:
    """Does not answer its first question; later on it knows one lease."""

    def __init__(self, current: Lease) -> None:
        self.current = current
        self.asked = asyncio.Event()
        self.back = asyncio.Event()
        self.finished: list[Lease] = []

    async def finish(self, transitions: list[Transition]) -> Finished:
        if not self.asked.is_set():
            self.asked.set()
            await self.back.wait()
            raise StoreUnavailable("away")
        accepted = [each.lease for each in transitions if each.lease == self.current]
        self.finished += accepted
        lost = frozenset(each.job for each in transitions if each.lease != self.current)
        return Finished(states={lease.job: State.SUCCEEDED for lease in accepted}, lost=lost)


def hold(leases: Leases, lease: Lease) -> None:
    leases.take([cast(Job, SimpleNamespace(id=lease.job, token=lease.token, fence=lease.fence, lease=lease))], 0.0, 0.0)

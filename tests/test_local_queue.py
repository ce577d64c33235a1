"""The queue in memory: four checks, one queue per phase, and who processes what. And the pools beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from windlass.model.job import Job, new_id
from windlass.model.processors import ProcessorState
from windlass.model.state import State
from windlass.runtime.local_queue import LocalQueue, QueueRefusal
from windlass.runtime.pool import PhasePools

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job(phase: str = "crawl", **values: Any) -> Job:
    blank: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    blank |= {
        "id": new_id(),
        "phase": phase,
        "queue": phase,
        "phase_rank": 0,
        "priority": 0,
        "crashes": 0,
        "tenant": "default",
        "status": State.RUNNING,
        "token": uuid4(),
    }
    return Job(**(blank | values))


def test_a_light_tenant_and_a_high_priority_do_not_wait_behind_what_came_before() -> None:
    queue = LocalQueue()
    heavy = [job(tenant="heavy") for _ in range(3)]
    light, urgent = job(tenant="light"), job(tenant="heavy", priority=5)
    for each in (*heavy, light, urgent):
        assert queue.enqueue(each) is None

    handed_out = [queue.dequeue("crawl", f"crawl-processor-{n}") for n in range(5)]

    assert handed_out == [urgent, heavy[0], light, heavy[1], heavy[2]]


def test_what_is_taken_out_leaves_the_others_in_their_order() -> None:
    queue = LocalQueue()
    jobs = [job(tenant=tenant) for tenant in ("a", "a", "b", "a")]
    for each in jobs:
        queue.enqueue(each)

    assert queue.drain(lambda each, at: each is jobs[1]) == [jobs[1]]

    assert (len(queue), queue.waiting("crawl")) == (3, 3)
    handed_out = [queue.dequeue("crawl", f"crawl-processor-{n}") for n in range(3)]
    assert handed_out == [jobs[0], jobs[2], jobs[3]]


def moved(original: Job, phase: str) -> Job:
    return job(phase, id=original.id)


def test_a_job_waits_and_is_handed_out_in_order() -> None:
    queue = LocalQueue()
    first, second = job(), job()

    assert queue.enqueue(first) is None
    assert queue.enqueue(second) is None

    assert (len(queue), queue.waiting("crawl")) == (2, 2)
    assert queue.dequeue("crawl", "crawl-processor-1") is first
    assert queue.dequeue("crawl", "crawl-processor-2") is second
    assert queue.dequeue("crawl", "crawl-processor-3") is None
    assert queue.processing == {"crawl-processor-1": first, "crawl-processor-2": second}


def test_the_four_checks_have_four_reasons() -> None:
    queue = LocalQueue(capacity=2)
    waiting, running = job(), job()
    queue.enqueue(running)
    queue.dequeue("crawl", "crawl-processor-1")
    queue.enqueue(waiting)

    assert queue.enqueue(waiting) is QueueRefusal.SAME_PHASE
    assert queue.enqueue(moved(waiting, "parse")) is QueueRefusal.OTHER_PHASE
    assert queue.enqueue(running) is QueueRefusal.PROCESSING
    assert queue.enqueue(moved(running, "parse")) is QueueRefusal.PROCESSING
    assert queue.enqueue(job()) is None
    assert queue.enqueue(job()) is QueueRefusal.FULL
    assert queue.enqueue(job("parse")) is None  # the room is each phase's own
    assert len({reason.value for reason in QueueRefusal}) == 4


def test_what_is_refused_changes_nothing() -> None:
    queue = LocalQueue(capacity=1)
    queue.enqueue(first := job())

    queue.enqueue(first)
    queue.enqueue(job())

    assert (len(queue), queue.dequeue("crawl", "p")) == (1, first)


def test_a_completed_job_may_come_again() -> None:
    queue = LocalQueue()
    queue.enqueue(one := job())
    queue.dequeue("crawl", "crawl-processor-1")

    assert queue.complete("crawl-processor-1") is one

    assert queue.processing == {}
    assert queue.enqueue(one) is None


def test_a_released_job_is_at_the_head_again() -> None:
    queue = LocalQueue()
    for one in (first := job(), job()):
        queue.enqueue(one)
    queue.dequeue("crawl", "crawl-processor-1")

    assert queue.release("crawl-processor-1") is first

    assert queue.processing == {}
    assert queue.enqueue(first) is QueueRefusal.SAME_PHASE
    assert queue.dequeue("crawl", "crawl-processor-2") is first


def test_earlier_phases_come_first() -> None:
    queue = LocalQueue()
    for phase, rank in [("store", 2), ("crawl", 0), ("parse", 1), ("parse", 1)]:
        queue.enqueue(job(phase, phase_rank=rank))

    assert list(queue.phases()) == [("crawl", 1), ("parse", 2), ("store", 1)]


def test_some_or_all_are_taken_out_to_be_given_back() -> None:
    queue = LocalQueue()
    queue.enqueue(old := job(), at=1.0)
    queue.enqueue(young := job("parse"), at=9.0)
    queue.enqueue(running := job("store"), at=1.0)
    queue.dequeue("store", "store-processor-1")

    assert queue.drain(lambda _, at: at < 5) == [old]
    assert queue.drain() == [young]
    assert (len(queue), queue.drain(), list(queue.processing.values())) == (0, [], [running])
    assert queue.enqueue(old) is None


def test_pools_name_their_processors_and_keep_the_total() -> None:
    pools = PhasePools(total=3, size=2)

    taken = [pools.acquire(phase) for phase in ("crawl", "crawl", "crawl", "parse", "parse")]

    assert [each and each.name for each in taken] == [
        "crawl-processor-1", "crawl-processor-2", None, "parse-processor-1", None,
    ]  # fmt: skip
    assert [each.state for each in pools] == [ProcessorState.BUSY] * 3
    assert pools.free == 0


def test_a_released_processor_is_idle_and_used_again() -> None:
    pools = PhasePools(total=2, size=None)
    one = pools.acquire("crawl")
    assert one is not None

    pools.release(one)

    assert (one.state, one.job, pools.free) == (ProcessorState.IDLE, None, 2)
    assert pools.acquire("crawl") is one


@pytest.mark.parametrize("stuck", [False, True])
def test_a_processor_in_error_is_reset_only_when_its_handler_has_ended(stuck: bool) -> None:
    pools = PhasePools(total=1, size=None)
    one = pools.acquire("crawl")
    assert one is not None

    pools.fail(one, stuck=stuck)

    assert (one.state, pools.free, pools.acquire("crawl")) == (ProcessorState.ERROR, 0, None)
    assert pools.reset() == ([] if stuck else [one])
    one.stuck = False
    pools.reset()
    assert (one.state, pools.free) == (ProcessorState.IDLE, 1)


def test_suspects_are_counted_until_their_processor_is_done_with_them() -> None:
    queue = LocalQueue()
    for crashes, type in [(1, "a"), (0, "a"), (2, "b"), (1, "a")]:
        queue.enqueue(job(crashes=crashes, type=type))
    assert (queue.suspects(), queue.suspects(["a"]), queue.suspects(["b"])) == (3, 2, 1)

    queue.dequeue("crawl", "one")
    assert queue.suspects() == 3
    queue.release("one")
    queue.dequeue("crawl", "one")
    queue.complete("one")
    assert queue.suspects() == 2
    queue.drain()
    assert queue.suspects() == 0

"""Limits: never more jobs of a key at a time than its rule allows, and a full key hides no other job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from windlass.model.flow import Advance, Flow
from windlass.model.state import State, Verb
from windlass.store.protocol import Suspects

from .admissions import drain, end_all, full, in_time, limit, nothing_is_left, running, used, waiting
from .flows import waiting_for
from .rig import TYPE, alone, new_job

if TYPE_CHECKING:
    from .rig import Rig

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "by creation": {"by_creation": True},
    "with the oldest": {"aged": 5},
    "without suspects": {"suspects": Suspects.WITHOUT},
}


# One key


@pytest.mark.parametrize("kind", KINDS)
async def test_no_more_jobs_of_a_key_run_than_its_limit(rig: Rig, kind: str) -> None:
    await rig.store.declare([limit("domain", 2)])
    for priority in (0, 0, 1, 2, 5):
        await rig.enqueue(limits=("domain:a",), priority=priority)

    claims = [await rig.claim(**KINDS[kind]) for _ in range(3)]

    assert [len(jobs) for jobs in claims] == [2, 0, 0]
    assert (await used(rig, "domain:a"), await running(rig, "domain:a")) == (2, 2)


async def test_the_first_of_a_key_come_first(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 2)])
    jobs = []
    for _ in range(5):
        jobs.append(await rig.enqueue(limits=("domain:a",)))
        await rig.advance(1)

    assert [job.id for job in await rig.claim()] == jobs[:2]
    assert [job.id for job in await rig.store.waiters("domain:a")] == jobs[2:]


async def test_a_claimed_job_tells_its_keys(rig: Rig) -> None:
    await rig.store.declare([limit("domain"), limit("wikidata")])
    await rig.enqueue(limits=("domain:a", "wikidata"))

    (job,) = await rig.claim()

    assert (job.limits, job.parked_on) == (["domain:a", "wikidata"], None)
    assert (await rig.find(job.id)).limits == ["domain:a", "wikidata"]


async def test_each_key_has_its_own_slots(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 2)])
    for key in ("domain:a", "domain:b", "domain:c"):
        await rig.enqueue_many(4, limits=(key,))

    jobs = await rig.claim(room=100)

    assert sorted(job.limits[0] for job in jobs if job.limits) == ["domain:a"] * 2 + ["domain:b"] * 2 + ["domain:c"] * 2


async def test_a_bare_name_is_one_key_for_all(rig: Rig) -> None:
    await rig.store.declare([limit("wikidata", 2)])
    await rig.enqueue_many(3, limits=("wikidata",), queue="mail")
    await rig.enqueue_many(3, limits=("wikidata",), queue="pages", tenant="acme")

    assert len(await rig.claim()) == 2


async def test_a_limit_holds_across_tenants_queues_types_and_priorities(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 3)])
    for number in range(12):
        await rig.enqueue(
            limits=("domain:a",), tenant=f"tenant {number % 2}", queue=f"queue {number % 3}", priority=number % 4
        )

    assert len(await rig.claim(room=50)) == 3
    assert await rig.claim(room=50) == []


async def test_the_room_of_a_claim_is_not_taken_by_refused_jobs(rig: Rig) -> None:
    await rig.store.declare([limit("domain")])
    await rig.enqueue_many(20, limits=("domain:a",))
    await rig.advance(1)
    others = [await rig.enqueue(limits=(f"domain:{name}",)) for name in "bcd"]

    claimed = [job.id for job in await rig.claim(room=4)]

    assert set(others) < set(claimed)
    assert len(claimed) == 4


async def test_jobs_without_limits_never_wait(rig: Rig) -> None:
    await full(rig)
    free = await rig.enqueue_many(3)

    assert {job.id for job in await rig.claim()} == set(free)


@pytest.mark.parametrize("first", [(), ("domain:a",)])
async def test_jobs_with_and_without_limits_do_not_pass_each_other(rig: Rig, first: tuple[str, ...]) -> None:
    """One that is older does not wait for a flood of younger ones, whichever of them has limits."""
    await rig.store.declare([limit("domain", 1_000)])
    second = () if first else ("domain:a",)
    old = await rig.enqueue(limits=first)
    await rig.advance(1)
    await rig.enqueue_many(100, limits=second)

    claimed = [job.id for _ in range(3) for job in await rig.claim(room=10)]

    assert old in claimed
    assert len(claimed) == 30


async def test_a_limit_that_was_never_declared_holds_no_job(rig: Rig) -> None:
    await rig.enqueue_many(5, limits=("domain:a",))

    jobs = await rig.claim()
    await end_all(rig, jobs)

    assert len(jobs) == 5
    await nothing_is_left(rig)


async def test_a_limit_declared_while_its_jobs_run_counts_them(rig: Rig) -> None:
    await rig.enqueue_many(3, limits=("domain:a",))
    early = await rig.claim(room=3)
    await rig.enqueue_many(3, limits=("domain:a",))

    await rig.store.declare([limit("domain", 2)])

    assert await rig.claim() == []
    for job in early[:2]:
        await rig.finish(job, Verb.SUCCEED)
    assert len(await rig.claim()) == 1
    assert await running(rig, "domain:a") == 2


# Several keys


async def test_a_job_needs_room_at_all_its_keys(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 3), limit("tenant", 2)])
    await rig.enqueue_many(5, limits=("domain:a", "tenant:acme"))

    assert len(await rig.claim()) == 2
    assert (await used(rig, "domain:a"), await used(rig, "tenant:acme")) == (2, 2)


@pytest.mark.parametrize("keys", [("domain:a", "tenant:new"), ("agent:new", "domain:a")])
async def test_a_job_refused_by_one_key_takes_no_slot_of_the_other(rig: Rig, keys: tuple[str, ...]) -> None:
    await rig.store.declare([limit("agent"), limit("domain"), limit("tenant")])
    await rig.enqueue(limits=("domain:a",))
    (holder,) = await rig.claim()
    (other,) = set(keys) - {"domain:a"}
    refused = await rig.enqueue(limits=keys)

    assert await rig.claim() == []
    assert await used(rig, other) == 0
    await rig.advance(1)
    neighbour = await rig.enqueue(limits=(other,))
    assert [job.id for job in await rig.claim()] == [neighbour]

    await rig.finish(holder, Verb.SUCCEED)
    await drain(rig, rounds=2)
    assert await rig.status(refused) is State.QUEUED  # now it waits for the neighbour
    await rig.store.operate(Verb.CANCEL, refused)
    assert await used(rig, "domain:a") == 0


async def test_in_one_claim_a_refused_job_leaves_the_slot_of_its_other_key(rig: Rig) -> None:
    await rig.store.declare([limit("domain"), limit("tenant")])
    expected = []
    for keys, runs in [
        (("domain:a", "tenant:x"), True),
        (("domain:a", "tenant:y"), False),
        (("domain:b", "tenant:y"), True),
        (("domain:b", "tenant:z"), False),
        (("domain:c", "tenant:z"), True),
    ]:
        job = await rig.enqueue(limits=keys)
        expected += [job] if runs else []
        await rig.advance(1)

    claimed = [job.id for _ in range(2) for job in await rig.claim()]

    assert sorted(claimed) == sorted(expected)  # at the latest with the next claim
    assert [await used(rig, key) for key in ("domain:a", "domain:b", "domain:c")] == [1, 1, 1]


async def test_a_job_with_a_full_second_key_does_not_keep_others_from_the_first(rig: Rig) -> None:
    await rig.store.declare([limit("domain"), limit("tenant")])
    await rig.enqueue(limits=("domain:a",))
    await rig.enqueue(limits=("tenant:x",))
    at_the_domain, _ = sorted(await rig.claim(), key=lambda job: job.limits or [])
    await rig.advance(1)
    both = await rig.enqueue(limits=("domain:a", "tenant:x"))
    await rig.advance(1)
    behind = await rig.enqueue(limits=("domain:a",))
    assert await rig.claim() == []

    # The one that comes first is let in, and finds its other key full: the slot goes to the job behind it.
    await rig.finish(at_the_domain, Verb.SUCCEED)
    claimed = [job.id for _ in range(2) for job in await rig.claim()]

    assert claimed == [behind]
    assert await rig.status(both) is State.QUEUED


async def test_many_jobs_with_two_keys_each_all_get_their_turn(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 2), limit("tenant", 3)])
    jobs = [new_job(limits=(f"domain:{n % 5}", f"tenant:{n % 7}")) for n in range(140)]
    await rig.store.enqueue(jobs)

    done = await drain(rig, rounds=150, room=20)

    assert sorted(done) == sorted(job.id for job in jobs)
    await nothing_is_left(rig)


# The rule changes


async def test_a_raised_limit_unparks_jobs(rig: Rig) -> None:
    _, parked = await full(rig, behind=4)

    await rig.store.declare([limit("domain", 3)])

    assert [job.id for job in await rig.claim()] == parked[:2]
    assert await rig.claim() == []


async def test_a_lowered_limit_lets_nobody_in_until_enough_have_ended(rig: Rig) -> None:
    await rig.store.declare([limit("domain", 3)])
    await rig.enqueue_many(6, limits=("domain:a",))
    held = await rig.claim()
    await rig.store.declare([limit("domain", 1)])

    let_in = []
    for job in held:
        await rig.finish(job, Verb.SUCCEED)
        let_in.append(len(await rig.claim()))

    assert let_in == [0, 0, 1]


async def test_the_same_rule_again_changes_nothing(rig: Rig) -> None:
    await full(rig)

    await rig.store.declare([limit("domain", 1)])

    assert await rig.claim() == []
    assert (await used(rig, "domain:a"), await waiting(rig, "domain:a")) == (1, 3)


async def test_many_programs_declare_at_once(rig: Rig) -> None:
    await full(rig)
    names = ["domain", *(f"name {n}" for n in range(20))]
    async with rig.stores(4) as stores:
        for most in (2, 3, 4):
            await in_time(*[store.declare([limit(name, most) for name in names]) for store in stores])

    assert len(await rig.claim()) == 3


# Which jobs wait


async def test_the_urgent_are_let_in_first_whenever_they_came(rig: Rig) -> None:
    holder, parked = await full(rig, behind=2)
    urgent = await rig.enqueue(limits=("domain:a",), priority=5)
    earlier_phase = await rig.enqueue(limits=("domain:a",), phase_rank=-1)
    assert await rig.claim() == []
    expected = [earlier_phase, urgent, *parked]

    assert [job.id for job in await rig.store.waiters("domain:a")] == expected
    await rig.finish(holder, Verb.SUCCEED)
    assert await drain(rig, rounds=5) == expected


async def test_a_new_job_does_not_pass_parked_jobs(rig: Rig) -> None:
    holder, (first, *_) = await full(rig)
    await rig.advance(1)

    await rig.finish(holder, Verb.SUCCEED)
    await rig.enqueue(limits=("domain:a",))

    assert [job.id for job in await rig.claim()] == [first]


async def test_a_cancelled_job_waits_no_more(rig: Rig) -> None:
    holder, (first, second, third) = await full(rig)

    assert await rig.store.operate(Verb.CANCEL, first) is State.CANCELLED

    assert (await rig.find(first)).parked_on is None
    assert [job.id for job in await rig.store.waiters("domain:a")] == [second, third]
    await rig.finish(holder, Verb.SUCCEED)
    assert await drain(rig, rounds=3) == [second, third]


@pytest.mark.parametrize("verb", [Verb.REPLAY, Verb.RESUME])
async def test_a_job_that_comes_back_takes_a_slot_like_any_other(rig: Rig, verb: Verb) -> None:
    holder, (first, *_) = await full(rig)
    await rig.finish(holder, Verb.BURY if verb is Verb.REPLAY else Verb.STOP)
    (next_one,) = await rig.claim()
    assert next_one.id == first

    assert await rig.store.operate(verb, holder.id) is State.QUEUED
    assert (await rig.find(holder.id)).limits == ["domain:a"]

    assert await rig.claim() == []
    await rig.finish(next_one, Verb.SUCCEED)
    assert len(await rig.claim()) == 1
    assert await used(rig, "domain:a") == 1


async def test_a_failed_job_that_is_parked_can_be_retried_by_hand(rig: Rig) -> None:
    holder, _ = await full(rig, behind=1)
    await rig.finish(holder, Verb.FAIL, delay=10.0, attempt=1)
    (second,) = await rig.claim()
    await rig.advance(10)
    assert await rig.claim() == []
    assert (await rig.find(holder.id)).parked_on == "domain:a"

    assert await rig.store.operate(Verb.RETRY, holder.id) is State.QUEUED
    assert await rig.claim() == []
    await rig.finish(second, Verb.SUCCEED)

    assert [job.id for job in await rig.claim()] == [holder.id]


async def test_a_child_and_a_woken_parent_count_too(rig: Rig) -> None:
    await rig.store.declare([limit("domain")])
    parent = await rig.running(limits=("domain:a",))
    child = alone(parent=parent.id, limits=("domain:a",))
    await rig.store.enqueue([child])
    assert await rig.finish(parent, Verb.WAIT, flow=Flow(wait=waiting_for(child))) is State.WAITING

    running_child = await rig.take(child.id)  # a parked job holds nothing
    await rig.enqueue(limits=("domain:a",), priority=9)
    assert await rig.claim() == []
    await rig.finish(running_child, Verb.SUCCEED)

    assert await rig.status(parent.id) is State.QUEUED
    assert len(await rig.claim()) == 1
    assert await used(rig, "domain:a") == 1


async def test_the_next_phase_counts_against_its_own_keys(rig: Rig) -> None:
    await rig.store.declare([limit("domain"), limit("form")])
    await rig.enqueue_many(2, limits=("domain:a",), pipeline="site", phase="analyse")
    (first,) = await rig.claim()
    step = Advance(type=TYPE, phase="form", phase_rank=1, queue="forms", max_attempts=4, limits=("form",))

    assert await rig.finish(first, Verb.ADVANCE, flow=Flow(advance=step)) is State.QUEUED

    assert {tuple(job.limits or ()) for job in await rig.claim()} == {("domain:a",), ("form",)}
    assert (await used(rig, "domain:a"), await used(rig, "form")) == (1, 1)

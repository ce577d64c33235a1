"""Consequences: the follow-up of an end is in the transaction that writes the end, in every way to end a job."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from windlass.errors import TransitionRefused
from windlass.model.flow import FollowUp, Moment
from windlass.model.job import Policy
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb

from .flows import BAD_ENDS, LIMIT, decoded, die, end, family, node
from .rig import alone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from windlass.model.job import Job

    from .rig import Rig

ERROR = '{"type":"Boom","message":"no","attempt":1,"attemptedAt":"2026-01-01T12:00:00Z"}'
EVERYTHING = ("id", "input", "output", "error")
DEADLY = {"dead", "condemned"}


def follow_up(moment: Moment, *, names: tuple[str, ...] = EVERYTHING) -> FollowUp:
    return FollowUp(type=f"after.{moment.value}", names=names, queue="after", priority=4, max_attempts=2)


def follow_ups(*moments: Moment, **options: Any) -> str:
    """For every moment, or for these."""
    return msgspec.json.encode({moment: follow_up(moment, **options) for moment in moments or Moment}).decode()


async def followers(rig: Rig) -> list[Job]:
    """The follow-up jobs that are there now; they are claimed by looking."""
    return await rig.claim(types=tuple(f"after.{moment.value}" for moment in Moment))


async def follower(rig: Rig, moment: Moment) -> Job:
    (job,) = await followers(rig)
    assert job.type == f"after.{moment.value}"
    return job


async def test_a_success_brings_its_follow_up(rig: Rig) -> None:
    job = await rig.running(follow_ups=follow_ups(), input='{"to":"ann"}', tenant="acme", priority=9)

    await rig.finish(job, Verb.SUCCEED, output='{"sent":[1,null]}')

    after = await follower(rig, Moment.SUCCEEDED)
    assert (after.queue, after.phase, after.priority, after.max_attempts) == ("after", "after", 4, 2)
    assert (after.tenant, after.status, after.attempt) == ("acme", State.RUNNING, 1)
    assert (after.run_at, after.created_at) == (rig.clock.now(), rig.clock.now())
    given = decoded(after.input)
    assert given.pop("error", None) is None
    assert given == {"id": str(job.id), "input": {"to": "ann"}, "output": {"sent": [1, None]}}


async def test_a_death_brings_its_follow_up(rig: Rig) -> None:
    job = await rig.running(follow_ups=follow_ups(), input='{"to":"ann"}')

    await rig.finish(job, Verb.BURY, error=ERROR)

    given = decoded((await follower(rig, Moment.DEAD)).input)
    assert given.pop("output", None) is None
    assert given == {"id": str(job.id), "input": {"to": "ann"}, "error": decoded(ERROR)}


async def test_a_death_without_an_error_of_its_own_tells_the_last_one(rig: Rig) -> None:
    job = await rig.running(follow_ups=follow_ups(Moment.DEAD))
    await rig.finish(job, Verb.FAIL, attempt=1, error=ERROR)

    await end(rig, job.id, Verb.BURY)

    assert decoded((await follower(rig, Moment.DEAD)).input)["error"] == decoded(ERROR)


@pytest.mark.parametrize("name", sorted(BAD_ENDS))
async def test_a_bad_end_brings_its_follow_up_in_every_way_to_end(rig: Rig, name: str) -> None:
    job = alone(follow_ups=follow_ups(), input='{"to":"ann"}')
    await rig.store.enqueue([job])

    await BAD_ENDS[name](rig, job.id)

    after = await follower(rig, Moment.DEAD if name in DEADLY else Moment.CANCELLED)
    given = decoded(after.input)
    assert (given["id"], given["input"]) == (str(job.id), {"to": "ann"})
    if name == "condemned":
        assert given["error"]["type"] == "WorkerDied"


@pytest.mark.parametrize(
    ("verb", "moment"),
    [(Verb.SUCCEED, Moment.SUCCEEDED), (Verb.BURY, Moment.DEAD), (Verb.STOP, Moment.CANCELLED)],
)
async def test_an_end_in_a_transaction_brings_its_follow_up_with_the_commit(
    rig: Rig, verb: Verb, moment: Moment
) -> None:
    job = await rig.running(follow_ups=follow_ups())
    transition = Transition(lease=job.lease, verb=verb, output="7", error=ERROR, followed=job.followed)

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(transition)
    assert await followers(rig) == []

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(transition)
        await transaction.commit()
    after = await follower(rig, moment)
    assert decoded(after.input)["id"] == str(job.id)


@pytest.mark.parametrize(
    ("policy", "moment"), [(Policy.FAIL, Moment.DEAD), (Policy.SKIP, Moment.CANCELLED)], ids=["fail", "skip"]
)
async def test_a_node_that_goes_with_its_dependency_brings_its_follow_up(
    rig: Rig, policy: Policy, moment: Moment
) -> None:
    dependency = alone()
    await rig.store.enqueue([dependency])
    after = await node(rig, dependency.id, policy=policy, follow_ups=follow_ups())

    await die(rig, dependency.id)

    assert decoded((await follower(rig, moment)).input)["id"] == str(after)


async def test_a_child_that_is_cancelled_with_its_parent_brings_its_follow_up(rig: Rig) -> None:
    parent, (child,) = await family(rig, 1)
    beside = alone(parent=child, follow_ups=follow_ups())
    await rig.store.enqueue([beside])

    await rig.store.operate(Verb.CANCEL, parent)

    assert await rig.status(child) is State.CANCELLED
    assert decoded((await follower(rig, Moment.CANCELLED)).input)["id"] == str(beside.id)


async def test_a_follow_up_is_given_only_what_its_parameters_name(rig: Rig) -> None:
    for names in [("id",), ("output", "input"), ()]:
        job = await rig.running(follow_ups=follow_ups(Moment.SUCCEEDED, names=names), input='{"a":1}')
        await rig.finish(job, Verb.SUCCEED, output="2")

        given = decoded((await follower(rig, Moment.SUCCEEDED)).input)

        assert given == {name: {"id": str(job.id), "input": {"a": 1}, "output": 2}[name] for name in names}


async def test_what_a_follow_up_is_given_keeps_its_json_to_the_last_digit(rig: Rig) -> None:
    text = '{"big":18446744073709551616,"float":1.0,"text":"é\\n\\u0041\\"","list":[null,true,{"a":{}}],"":""}'
    job = await rig.running(follow_ups=follow_ups(Moment.SUCCEEDED), input=text)

    await rig.finish(job, Verb.SUCCEED, output=text)

    after = await follower(rig, Moment.SUCCEEDED)
    given = decoded(after.input)
    assert (given["input"], given["output"]) == (decoded(text), decoded(text))
    assert after.input.count("18446744073709551616") == 2
    assert after.input.count("1.0") == 2


@pytest.mark.parametrize(
    ("moment", "verb"),
    [
        (Moment.DEAD, Verb.SUCCEED),
        (Moment.DEAD, Verb.STOP),
        (Moment.CANCELLED, Verb.BURY),
        (Moment.SUCCEEDED, Verb.BURY),
    ],
)
async def test_another_end_brings_no_follow_up(rig: Rig, moment: Moment, verb: Verb) -> None:
    job = await rig.running(follow_ups=follow_ups(moment))

    await rig.finish(job, verb)

    assert await followers(rig) == []


@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.SNOOZE, Verb.RELEASE, Verb.WAIT, Verb.ADVANCE])
async def test_what_is_no_end_brings_no_follow_up(rig: Rig, verb: Verb) -> None:
    job = await rig.running(follow_ups=follow_ups())

    await rig.finish(job, verb, attempt=1, error=ERROR)

    assert await followers(rig) == []


async def test_a_rescue_and_a_discard_bring_no_follow_up(rig: Rig) -> None:
    job = await rig.running(follow_ups=follow_ups())
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    rig.worker = await rig.register()
    assert await followers(rig) == []
    await end(rig, job.id, Verb.BURY)
    assert len(await followers(rig)) == 1

    await rig.store.operate(Verb.DISCARD, job.id)

    assert await followers(rig) == []


async def test_every_end_brings_a_follow_up_of_its_own(rig: Rig) -> None:
    job = await rig.running(follow_ups=follow_ups())
    await rig.finish(job, Verb.BURY)
    await follower(rig, Moment.DEAD)

    await rig.store.operate(Verb.REPLAY, job.id)
    assert await followers(rig) == []
    await rig.store.operate(Verb.CANCEL, job.id)
    await follower(rig, Moment.CANCELLED)
    await rig.store.operate(Verb.RESUME, job.id)
    await end(rig, job.id)

    await follower(rig, Moment.SUCCEEDED)


async def test_a_lost_lease_brings_no_follow_up(rig: Rig) -> None:
    stale = await rig.running(follow_ups=follow_ups())
    await rig.die(rig.worker)
    await rig.store.sweep(max_crashes=3)
    rig.worker = await rig.register()

    assert await rig.finish(stale, Verb.SUCCEED) is None
    assert await rig.finish(stale, Verb.BURY) is None

    assert await followers(rig) == []


async def test_follow_ups_of_many_ends_in_one_batch(rig: Rig) -> None:
    jobs = [await rig.running(follow_ups=follow_ups()) for _ in range(6)]
    verbs = [Verb.SUCCEED, Verb.BURY, Verb.STOP] * 2

    await rig.store.finish(
        [Transition(lease=job.lease, verb=verb, followed=job.followed) for job, verb in zip(jobs, verbs, strict=True)]
    )

    brought: dict[UUID, str] = {}
    for after in await followers(rig):
        brought[decoded(after.input)["id"]] = after.type
    words = ["after.succeeded", "after.dead", "after.cancelled"] * 2
    assert brought == {str(job.id): word for job, word in zip(jobs, words, strict=True)}


async def test_of_many_cancels_at_once_one_brings_a_follow_up(rig: Rig) -> None:
    async with rig.stores(4) as stores:
        for _ in range(8):
            job = alone(follow_ups=follow_ups())
            await rig.store.enqueue([job])

            answers = await asyncio.gather(
                *[store.operate(Verb.CANCEL, job.id) for store in stores], return_exceptions=True
            )

            assert sorted(type(each).__name__ for each in answers) == ["State", *["TransitionRefused"] * 3], answers
            await follower(rig, Moment.CANCELLED)


async def test_of_a_success_and_a_sweep_at_once_one_brings_a_follow_up(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for _ in range(10):
            job = await rig.running(follow_ups=follow_ups())
            await rig.die(rig.worker)

            state, _ = await asyncio.gather(
                rig.finish(job, Verb.SUCCEED, store=one), other.sweep(max_crashes=1), return_exceptions=True
            )

            rig.worker = await rig.register()
            after = await follower(rig, Moment.DEAD if state is None else Moment.SUCCEEDED)
            assert decoded(after.input)["id"] == str(job.id)


async def test_of_a_cancel_and_a_success_at_once_one_end_is_told(rig: Rig) -> None:
    async with rig.stores(2) as (one, other):
        for _ in range(10):
            job = await rig.running(follow_ups=follow_ups())

            async def cancel(job: Job = job) -> None:
                try:
                    await other.operate(Verb.CANCEL, job.id)
                except TransitionRefused:
                    pass  # it had succeeded already

            actions: list[Callable[[], Awaitable[Any]]] = [
                cancel,
                lambda job=job: rig.finish(job, Verb.SUCCEED, store=one),  # type: ignore[misc]
            ]
            await asyncio.gather(*[action() for action in actions])

            assert await rig.status(job.id) is State.SUCCEEDED
            await follower(rig, Moment.SUCCEEDED)

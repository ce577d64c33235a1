"""Unique and idempotency keys: one job for a key, however many ask at once, and no key that points to nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from windlass.errors import IdempotencyConflict, TransitionRefused
from windlass.model.flow import Advance, Flow
from windlass.model.state import State, Verb
from windlass.policy.unique import Uniqueness, unique_key

from .flows import BAD_ENDS, LIMIT, REFUSING, die, end, holder, idempotency, unique
from .rig import TYPE, alone

if TYPE_CHECKING:
    from .rig import Rig

DAY = timedelta(days=1).total_seconds()
HISTORY, AUDIT = 7 * DAY, 90 * DAY
PRODUCERS = 64


# Unique


async def test_a_job_without_a_key_is_always_new(rig: Rig) -> None:
    assert await rig.store.enqueue([alone(), alone()]) == {}


async def test_a_second_job_of_a_key_is_answered_with_the_first(rig: Rig) -> None:
    first, second = alone(unique=unique(), input='{"a":1}'), alone(unique=unique(), input='{"b":2}')
    assert await rig.store.enqueue([first]) == {}

    assert await rig.store.enqueue([second]) == {second.id: first.id}

    assert await rig.store.find(second.id) is None
    assert (await rig.find(first.id)).input == '{"a":1}'
    assert sum((await rig.store.counts()).values()) == 1


@pytest.mark.parametrize("field", ["key", "scope"])
async def test_another_key_or_scope_is_another_matter(rig: Rig, field: str) -> None:
    await rig.store.enqueue([alone(unique=unique())])

    assert await holder(rig, unique=unique(**{field: "another"})) is None


@pytest.mark.parametrize("state", sorted(State))
async def test_a_key_refuses_in_all_states_but_dead_and_cancelled(rig: Rig, state: State) -> None:
    job = await rig.job_in(state, unique=unique())

    expected = job if state.value in REFUSING else None
    assert await holder(rig, unique=unique()) == expected


@pytest.mark.parametrize("state", sorted(State))
async def test_a_key_refuses_in_the_states_that_were_chosen(rig: Rig, state: State) -> None:
    for chosen in sorted(State):
        states = ("queued", chosen.value)  # every job begins as queued, and takes its key with it
        key = unique(chosen.value, states=states)
        job = await rig.job_in(state, unique=key, queue=f"of {chosen.value}")

        assert await holder(rig, unique=key) == (job if state.value in states else None), chosen


@pytest.mark.parametrize("name", sorted(BAD_ENDS))
async def test_a_key_is_free_after_every_way_to_end(rig: Rig, name: str) -> None:
    job = alone(unique=unique())
    await rig.store.enqueue([job])
    await BAD_ENDS[name](rig, job.id)

    assert await holder(rig, unique=unique()) is None


async def test_a_key_taken_over_belongs_to_the_new_job_only(rig: Rig) -> None:
    old = await rig.job_in(State.DEAD, unique=unique())
    new = alone(unique=unique())
    await rig.store.enqueue([new])

    assert await holder(rig, unique=unique()) == new.id
    await rig.store.operate(Verb.DISCARD, old)
    assert await holder(rig, unique=unique()) == new.id


async def test_a_key_survives_retries_waits_and_a_resume(rig: Rig) -> None:
    job = await rig.running(unique=unique())
    await rig.finish(job, Verb.FAIL, attempt=1)
    assert await holder(rig, unique=unique()) == job.id
    await end(rig, job.id, Verb.SNOOZE)
    await end(rig, job.id, Verb.WAIT)
    assert await holder(rig, unique=unique()) == job.id

    await rig.store.operate(Verb.CANCEL, job.id)
    await rig.store.operate(Verb.RESUME, job.id)

    assert await holder(rig, unique=unique()) == job.id


async def test_a_discarded_job_holds_no_key(rig: Rig) -> None:
    key = unique(states=(*REFUSING, "dead"))
    job = await rig.job_in(State.DEAD, unique=key)
    assert await holder(rig, unique=key) == job

    await rig.store.operate(Verb.DISCARD, job)

    assert await holder(rig, unique=key) is None


# Windows, and what outlives a job


async def test_a_window_counts_from_the_enqueue(rig: Rig) -> None:
    job = alone(unique=unique(window=60.0))
    await rig.store.enqueue([job])
    await rig.advance(59)
    assert await holder(rig, unique=unique(window=60.0)) == job.id

    await rig.advance(2)

    new = alone(unique=unique(window=60.0))
    assert await rig.store.enqueue([new]) == {}
    await rig.advance(59)
    assert await holder(rig, unique=unique(window=60.0)) == new.id


async def test_the_end_of_an_old_job_does_not_free_the_key_of_the_new_one(rig: Rig) -> None:
    old = await rig.running(unique=unique(window=60.0))
    await rig.advance(61)
    new = alone(unique=unique(window=60.0))
    await rig.store.enqueue([new])

    await rig.finish(old, Verb.BURY)

    assert await holder(rig, unique=unique(window=60.0)) == new.id


async def test_a_key_for_ever_refuses_after_its_jobs_history_has_passed(rig: Rig) -> None:
    job = await rig.job_in(State.SUCCEEDED, unique=unique(forever=True))
    await rig.advance(HISTORY + 3 * DAY)
    await rig.store.prune(history=HISTORY, audit=AUDIT)
    assert await rig.store.find(job) is None

    assert await holder(rig, unique=unique(forever=True)) == job
    await rig.advance(1_000 * DAY)
    await rig.store.prune(history=HISTORY, audit=AUDIT)
    assert await holder(rig, unique=unique(forever=True)) == job


async def test_a_key_for_ever_is_free_while_its_job_is_dead(rig: Rig) -> None:
    await rig.job_in(State.DEAD, unique=unique(forever=True))
    await rig.advance(HISTORY + 3 * DAY)
    await rig.store.prune(history=HISTORY, audit=AUDIT)

    assert await holder(rig, unique=unique(forever=True)) is None


async def test_a_window_longer_than_the_history_is_kept(rig: Rig) -> None:
    keys = {"unique": unique(window=30 * DAY), "idempotency": idempotency("other", window=30 * DAY)}
    for name, key in keys.items():
        job = await rig.job_in(State.SUCCEEDED, **{name: key})
        keys[name] = key
        await rig.advance(1)
        assert await holder(rig, **{name: key}) == job
    await rig.advance(HISTORY + 3 * DAY)
    await rig.store.prune(history=HISTORY, audit=AUDIT)

    assert await holder(rig, unique=keys["unique"]) is not None
    assert await holder(rig, idempotency=keys["idempotency"]) is not None


async def test_a_prune_deletes_keys_that_refuse_no_enqueue_any_more(rig: Rig) -> None:
    await rig.job_in(State.SUCCEEDED, unique=unique("of a past job"))
    await rig.job_in(State.SUCCEEDED, idempotency=idempotency("of a past day"))
    kept = await rig.enqueue(unique=unique("of a queued job"))
    await rig.advance(HISTORY + 3 * DAY)

    await rig.store.prune(history=HISTORY, audit=AUDIT)

    assert [row[0] for row in await rig.run("SELECT key FROM {}keys")] == ["of a queued job"]
    assert await holder(rig, unique=unique("of a queued job")) == kept
    assert await holder(rig, unique=unique("of a past job")) is None


async def test_a_prune_leaves_the_keys_of_living_jobs(rig: Rig) -> None:
    jobs = {state: await rig.job_in(state, unique=unique(state.value)) for state in (State.FAILED, State.WAITING)}
    await rig.advance(100 * DAY)

    await rig.store.prune(history=HISTORY, audit=AUDIT)

    for state, job in jobs.items():
        assert await holder(rig, unique=unique(state.value)) == job


# Replay and resume


@pytest.mark.parametrize(("state", "verb"), [(State.DEAD, Verb.REPLAY), (State.CANCELLED, Verb.RESUME)])
async def test_a_job_whose_key_was_taken_cannot_come_back(rig: Rig, state: State, verb: Verb) -> None:
    old = await rig.job_in(state, unique=unique())
    before = await rig.find(old)
    new = alone(unique=unique())
    await rig.store.enqueue([new])

    with pytest.raises(TransitionRefused, match=str(new.id)):
        await rig.store.operate(verb, old)

    assert await rig.find(old) == before
    assert await holder(rig, unique=unique()) == new.id


@pytest.mark.parametrize(("state", "verb"), [(State.DEAD, Verb.REPLAY), (State.CANCELLED, Verb.RESUME)])
async def test_a_job_that_comes_back_holds_its_key_again(rig: Rig, state: State, verb: Verb) -> None:
    job = await rig.job_in(state, unique=unique())

    await rig.store.operate(verb, job)

    assert await holder(rig, unique=unique()) == job


@pytest.mark.parametrize(("state", "verb"), [(State.DEAD, Verb.REPLAY), (State.CANCELLED, Verb.RESUME)])
async def test_a_job_comes_back_when_the_one_that_took_its_key_has_let_go(rig: Rig, state: State, verb: Verb) -> None:
    old = await rig.job_in(state, unique=unique())
    new = alone(unique=unique())
    await rig.store.enqueue([new])
    await die(rig, new.id)

    assert await rig.store.operate(verb, old) is State.QUEUED

    assert await holder(rig, unique=unique()) == old
    with pytest.raises(TransitionRefused, match=str(old)):
        await rig.store.operate(Verb.REPLAY, new.id)


@pytest.mark.parametrize("tenant", ["acme", "a/b", "50%", "*"])
@pytest.mark.parametrize("shared", [False, True])
async def test_a_key_is_found_again_whatever_its_tenant_is_called(rig: Rig, tenant: str, shared: bool) -> None:
    policy = Uniqueness(shared=shared)
    key = unique_key(policy, "one", tenant=tenant, type=TYPE)
    old = await rig.job_in(State.DEAD, unique=key, tenant=tenant)
    new = alone(unique=key, tenant=tenant)
    await rig.store.enqueue([new])

    with pytest.raises(TransitionRefused, match=str(new.id)):
        await rig.store.operate(Verb.REPLAY, old)


async def test_a_key_is_found_again_after_a_pipeline_changed_the_type(rig: Rig) -> None:
    old = await rig.running(unique=unique())
    further = Advance(type="site.form", phase="form", phase_rank=1, queue="forms", max_attempts=4)
    await rig.finish(old, Verb.ADVANCE, flow=Flow(advance=further))
    await die(rig, old.id)
    new = alone(unique=unique())
    assert await rig.store.enqueue([new]) == {}

    with pytest.raises(TransitionRefused, match=str(new.id)):
        await rig.store.operate(Verb.REPLAY, old.id)


# Idempotency


@pytest.mark.parametrize("state", sorted(State))
async def test_an_idempotency_key_refuses_whatever_became_of_its_job(rig: Rig, state: State) -> None:
    job = await rig.job_in(state, idempotency=idempotency())

    assert await holder(rig, idempotency=idempotency()) == job


async def test_an_idempotency_key_is_free_after_its_time_even_for_something_else(rig: Rig) -> None:
    await rig.enqueue(idempotency=idempotency())
    await rig.advance(DAY + 1)

    assert await holder(rig, idempotency=idempotency(fingerprint="other")) is None


async def test_the_same_key_with_other_input_writes_nothing(rig: Rig) -> None:
    await rig.enqueue(idempotency=idempotency())
    batch = [
        alone(),
        alone(unique=unique("fresh")),
        alone(idempotency=idempotency("fresh")),
        alone(idempotency=idempotency(fingerprint="other")),
        alone(),
    ]

    with pytest.raises(IdempotencyConflict, match="one"):
        await rig.store.enqueue(batch)

    assert sum((await rig.store.counts()).values()) == 1
    assert await holder(rig, unique=unique("fresh")) is None
    assert await holder(rig, idempotency=idempotency("fresh")) is None


async def test_a_conflict_writes_nothing_in_a_transaction_either(rig: Rig) -> None:
    await rig.enqueue(idempotency=idempotency())
    beside = alone()

    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.enqueue([beside])
        with pytest.raises(IdempotencyConflict):
            await transaction.enqueue(
                [
                    alone(unique=unique("fresh")),
                    alone(idempotency=idempotency("fresh")),
                    alone(),
                    alone(idempotency=idempotency(fingerprint="other")),
                ]
            )
        await transaction.commit()

    assert sum((await rig.store.counts()).values()) == 2
    assert await rig.status(beside.id) is State.QUEUED
    assert await holder(rig, unique=unique("fresh")) is None
    assert await holder(rig, idempotency=idempotency("fresh")) is None


async def test_two_inputs_under_one_key_in_one_batch_are_a_conflict(rig: Rig) -> None:
    with pytest.raises(IdempotencyConflict):
        await rig.store.enqueue([alone(idempotency=idempotency()), alone(idempotency=idempotency(fingerprint="other"))])

    assert sum((await rig.store.counts()).values()) == 0
    assert await holder(rig, idempotency=idempotency()) is None


# Batches, and both keys


async def test_a_batch_of_keyed_and_plain_jobs(rig: Rig) -> None:
    held = await rig.enqueue(unique=unique("held"))
    plain, fresh, refused, again, twice = (
        alone(),
        alone(unique=unique("fresh")),
        alone(unique=unique("held")),
        alone(unique=unique("fresh")),
        alone(idempotency=idempotency("fresh")),
    )

    answer = await rig.store.enqueue([plain, fresh, refused, again, twice])

    assert answer == {refused.id: held, again.id: fresh.id}
    for job in (plain, fresh, twice):
        assert await rig.status(job.id) is State.QUEUED
    for job in (refused, again):
        assert await rig.store.find(job.id) is None


async def test_a_large_batch_of_one_key_makes_one_job(rig: Rig) -> None:
    jobs = [alone(unique=unique(f"key {number % 10}")) for number in range(1_000)]

    answer = await rig.store.enqueue(jobs)

    assert len(answer) == 990
    assert set(answer.values()) == {job.id for job in jobs[:10]}
    assert (await rig.store.counts())[State.QUEUED] == 10


async def test_a_job_refused_by_its_unique_key_takes_no_idempotency_key(rig: Rig) -> None:
    first = await rig.enqueue(unique=unique())
    refused = alone(unique=unique(), idempotency=idempotency())
    assert await rig.store.enqueue([refused]) == {refused.id: first}

    answer = await holder(rig, idempotency=idempotency())

    assert answer in (None, first)  # free, or pointing to the job that the first call was answered with


async def test_a_job_refused_by_its_idempotency_key_takes_no_unique_key(rig: Rig) -> None:
    first = await rig.enqueue(idempotency=idempotency())
    refused = alone(unique=unique(), idempotency=idempotency())
    assert await rig.store.enqueue([refused]) == {refused.id: first}

    new = alone(unique=unique())
    assert await rig.store.enqueue([new]) == {}

    assert await holder(rig, unique=unique()) == new.id


async def test_a_refused_job_gives_no_key_to_the_next_of_its_batch(rig: Rig) -> None:
    first = await rig.enqueue(unique=unique("held"))
    refused = alone(unique=unique("held"), idempotency=idempotency())
    next_one = alone(idempotency=idempotency())

    answer = await rig.store.enqueue([refused, next_one])

    assert answer[refused.id] == first
    assert answer.get(next_one.id, first) == first
    assert (await rig.store.find(next_one.id) is not None) == (next_one.id not in answer)


async def test_a_refused_job_does_not_take_over_a_free_key(rig: Rig) -> None:
    dead = await rig.job_in(State.DEAD, unique=unique())
    first = await rig.enqueue(idempotency=idempotency())
    refused = alone(unique=unique(), idempotency=idempotency())
    assert await rig.store.enqueue([refused]) == {refused.id: first}

    assert await rig.store.operate(Verb.REPLAY, dead) is State.QUEUED
    assert await holder(rig, unique=unique()) == dead

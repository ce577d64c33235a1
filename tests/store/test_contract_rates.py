"""Rates: one bucket for claims and calls, exact over any time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from windlass.errors import UnknownLimit
from windlass.model.state import State, Verb

from .admissions import BUCKET, call, end_all, exact, in_time, limit, limit_counter, rate, started, used
from .rig import new_job

if TYPE_CHECKING:
    from .rig import Rig

STEP = 0.05  # seconds: four to a token where there are five a second


# At the claim


async def test_jobs_start_at_their_rate_and_no_faster(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 5)])
    await rig.enqueue_many(60, limits=(BUCKET,))

    starts = []
    for _ in range(200):
        starts.append(await started(rig))
        await rig.advance(STEP)

    assert starts == [1, 0, 0, 0] * 50
    assert (await rig.store.counts())[State.SUCCEEDED] == 50


async def test_a_burst_is_kept_up_and_not_more(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 5, burst=3)])
    await rig.enqueue_many(60, limits=(BUCKET,))

    first = [await started(rig)]
    for _ in range(4):
        await rig.advance(0.2)
        first.append(await started(rig))
    await rig.advance(0.5)
    some = await started(rig)
    await rig.advance(3600)
    after_a_rest = await started(rig)

    assert (first, some, after_a_rest) == ([3, 1, 1, 1, 1], 2, 3)


async def test_keys_of_a_rate_have_buckets_of_their_own(rig: Rig) -> None:
    await rig.store.declare([rate("host", 1)])
    for name in "abc":
        await rig.enqueue_many(3, limits=(f"host:{name}",))

    assert [await started(rig), await started(rig)] == [3, 0]
    await rig.advance(1)
    assert await started(rig) == 3


async def test_a_token_is_used_however_the_attempt_ends(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 1)])
    await rig.enqueue_many(5, limits=(BUCKET,))

    for verb in (Verb.SUCCEED, Verb.FAIL, Verb.RELEASE, Verb.SNOOZE):
        (job,) = await rig.claim()
        await rig.finish(job, verb, delay=0.0, attempt=1)
        assert await rig.claim() == []
        await rig.advance(1)

    row = await limit_counter(rig, BUCKET)
    assert row is not None
    assert (row.most, row.used, row.period, row.burst) == (None, 0, 1.0, 1)


async def test_a_claim_says_when_the_next_token_comes(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 1, every=10.0)])
    await rig.enqueue_many(3, limits=(BUCKET,))
    await rig.claim()

    times = []
    for seconds in (0, 4, 5):
        await rig.advance(seconds)
        times.append((await rig.ask()).next_due)
    await rig.advance(1)

    assert times == [exact(10), exact(6), exact(1)]
    assert len((await rig.ask()).jobs) == 1


async def test_a_token_that_is_due_needs_no_rescan(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 1, every=10.0)])
    await rig.enqueue_many(4, limits=(BUCKET,))
    await rig.ask()

    for _ in range(3):
        # On a file every claim reads all lanes and reports it; on a server only a rescan does.
        times = (await rig.ask(rescan=rig.dialect == "postgres")).next_due
        assert times == exact(10)
        await rig.advance(10)
        assert len((await rig.ask(rescan=False)).jobs) == 1


async def test_what_comes_first_is_told_of_a_token_and_a_time(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 1, every=10.0)])
    await rig.enqueue_many(2, limits=(BUCKET,))
    await rig.enqueue(delay=3.0)
    await rig.claim()

    assert (await rig.ask()).next_due == exact(3)


async def test_a_limit_that_is_full_has_no_time_to_tell(rig: Rig) -> None:
    await rig.store.declare([limit("domain")])
    await rig.enqueue_many(2, limits=("domain:a",))
    await rig.claim()

    assert (await rig.ask()).next_due is None


async def test_a_job_may_have_a_rate_and_a_limit(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 1), limit("domain", 2)])
    await rig.enqueue_many(6, limits=("domain:a", BUCKET))

    held = []
    for _ in range(3):
        held += await rig.claim()
        await rig.advance(1)
    assert len(held) == 2  # a token came each second, and the third found the domain full
    await end_all(rig, held)

    assert [len(await rig.claim()), len(await rig.claim())] == [1, 0]
    assert await used(rig, "domain:a") == 1


async def test_a_refused_job_takes_no_token(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 1, every=60.0), limit("domain")])
    await rig.enqueue(limits=("domain:a",))
    await rig.claim()
    await rig.enqueue(limits=("domain:a", BUCKET))

    assert await rig.claim() == []

    assert (await call(rig, most=0)).granted


# Inside a handler


async def test_calls_get_tokens_for_later_and_none_too_far_away(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 5)])

    grants = [await call(rig, most=0.9) for _ in range(7)]

    assert [grant.granted for grant in grants] == [True] * 5 + [False] * 2
    assert [grant.wait for grant in grants] == [exact(0.2 * n) for n in (0, 1, 2, 3, 4, 5, 5)]
    await rig.advance(0.2)
    last = await call(rig, most=0.9)
    assert (last.granted, last.wait) == (True, exact(0.8))


async def test_a_claim_and_a_call_take_from_one_bucket(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 1, burst=2)])
    await rig.enqueue_many(4, limits=(BUCKET,))

    assert (await call(rig)).wait == 0
    assert await started(rig) == 1
    assert not (await call(rig, most=0.5)).granted
    await rig.advance(1)
    assert (await call(rig, most=0)).granted
    assert await started(rig) == 0
    await rig.advance(1)
    assert await started(rig) == 1


async def test_nobody_claims_a_token_that_was_promised(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 1)])
    await rig.enqueue_many(4, limits=(BUCKET,))
    grants = [await call(rig) for _ in range(3)]

    starts = []
    for _ in range(5):
        starts.append(await started(rig))
        await rig.advance(1)

    assert [grant.wait for grant in grants] == [exact(0), exact(1), exact(2)]
    assert starts == [0, 0, 0, 1, 1]


async def test_calls_at_once_get_tokens_one_after_the_other(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 5)])
    async with rig.stores(4) as stores:
        grants = await in_time(*[stores[n % 4].acquire(BUCKET, most=60) for n in range(40)])

    assert sorted(grant.wait for grant in grants) == [exact(0.2 * n) for n in range(40)]


async def test_claims_and_calls_at_once_never_share_a_token(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 1, burst=5)])
    async with rig.stores(4) as stores:
        for turn in range(10):
            await rig.enqueue_many(10, limits=(BUCKET,))

            *batches, one, other = await in_time(
                *[rig.claim(store=store, room=4) for store in stores],
                stores[0].acquire(BUCKET, most=0),
                stores[1].acquire(BUCKET, most=0),
            )

            tokens = sum(len(batch) for batch in batches) + one.granted + other.granted
            assert tokens <= 5
            assert tokens + len(await rig.claim()) == 5, turn
            await rig.advance(5)


async def test_over_any_time_there_are_no_more_tokens_than_the_rate_gives(rig: Rig) -> None:
    """Claims and calls at random times: judged by when each token is for."""
    chance, period, burst = random.Random(11), 0.2, 3
    await rig.store.declare([rate(BUCKET, 5, burst=burst)])
    await rig.store.enqueue([new_job(limits=(BUCKET,)) for _ in range(400)])
    now, times = 0.0, []
    for _ in range(250):
        if chance.random() < 0.5:
            times += [now] * await started(rig)
        else:
            grant = await call(rig, most=chance.choice((0.0, 0.3, 1.0)))
            times += [now + grant.wait] if grant.granted else []
        pause = chance.choice((0.0, 0.0, 0.05, 0.1, 0.35))
        await rig.advance(pause)
        now += pause

    times.sort()
    for start, first in enumerate(times):
        for many, last in enumerate(times[start:], 1):
            assert many <= burst + (last - first + 1e-6) / period
    assert len(times) >= now / period - burst  # and none is lost: there was always a job for one


async def test_a_rate_that_changes_holds_from_then_on(rig: Rig) -> None:
    await rig.store.declare([rate(BUCKET, 1, every=10.0)])
    await rig.enqueue_many(9, limits=(BUCKET,))
    assert await started(rig) == 1
    assert await started(rig) == 0

    await rig.store.declare([rate(BUCKET, 1, every=1.0)])
    await rig.advance(10)
    starts = []
    for _ in range(4):
        starts.append(await started(rig))
        await rig.advance(1)

    assert starts == [1, 1, 1, 1]


@pytest.mark.parametrize("key", ["nobody", "nobody:a"])
async def test_a_bucket_that_nobody_declared_is_an_error(rig: Rig, key: str) -> None:
    with pytest.raises(UnknownLimit, match="'nobody'"):
        await rig.store.acquire(key, most=5)
    with pytest.raises(UnknownLimit, match="'nobody'"):
        await rig.store.hold_back(key, 5)

    assert await rig.store.held_for(key) == 0
    assert await rig.store.limits() == []

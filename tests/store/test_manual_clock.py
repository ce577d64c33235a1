"""The clock that the stories move."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

from windlass.testing.clock import START, ManualClock


def test_time_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock()
    assert (clock.now(), clock.monotonic()) == (START, 0.0)

    clock.advance(1.5)

    assert (clock.now(), clock.monotonic()) == (START + timedelta(seconds=1.5), 1.5)


async def test_sleepers_wake_when_their_time_has_come_and_in_its_order() -> None:
    clock = ManualClock()
    woken: list[int] = []

    async def sleep(seconds: int) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as group:
        for seconds in (30, 10, 20):
            group.create_task(sleep(seconds))
        await asyncio.sleep(0)
        clock.advance(9)
        await asyncio.sleep(0)
        assert woken == []
        clock.advance(100)

    assert woken == [10, 20, 30]


async def test_no_time_at_all_is_no_sleep() -> None:
    async with asyncio.timeout(5):
        await ManualClock().sleep(0)


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(10))
    await asyncio.sleep(0)

    sleeper.cancel()
    await asyncio.wait([sleeper])
    clock.advance(10)
    await asyncio.sleep(0)

    assert sleeper.cancelled()


def test_a_sleeper_on_another_threads_loop_is_woken() -> None:
    clock = ManualClock()
    asleep = threading.Event()

    async def sleep() -> None:
        asyncio.get_running_loop().call_soon(asleep.set)  # runs once this coroutine has gone to sleep
        await clock.sleep(60)

    thread = threading.Thread(target=asyncio.run, args=(sleep(),))
    thread.start()
    assert asleep.wait(5)
    clock.advance(60)
    thread.join(5)

    assert not thread.is_alive()

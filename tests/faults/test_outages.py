"""The database goes away and comes back: every part of a worker works again with the first answer that one gets."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from windlass import Windlass
from windlass.clock import SystemClock
from windlass.errors import StoreBusy, StoreUnavailable
from windlass.store.contact import Contact
from windlass.testing.clock import ManualClock

from .proxy import Proxy, proxied
from .rig import FaultLab

LIMIT = 30.0  # seconds until a story gives up
AN_HOUR = 3600.0


@pytest.fixture
def longest_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever backs off does so for an hour, and so only comes back when it is woken."""
    uniform = random.uniform
    monkeypatch.setattr(random, "uniform", lambda low, high: AN_HOUR if low == 0.01 else uniform(low, high))


@asynccontextmanager
async def away(url: str, **settings: Any) -> AsyncIterator[tuple[Windlass, Proxy]]:
    """An app behind a proxy, so that its connections can be cut."""
    with proxied(url) as proxy:
        app = Windlass(proxy.url, **({"grace": "1s", "cancel_grace": "0.2s"} | settings))
        try:
            yield app, proxy
        finally:
            proxy.heal()
            await app.aclose()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - what is awaited is a line in a log
            await asyncio.sleep(0.01)


def noise(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the driver and the event loop logged by themselves."""
    warnings = [record for record in caplog.records if record.name.startswith("asyncpg") or record.name == "asyncio"]
    return [record.getMessage() for record in warnings if record.levelno >= logging.WARNING]


async def test_the_first_answer_after_an_outage_ends_every_pause(
    postgres_lab: FaultLab, longest_pauses: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "windlass")
    go = asyncio.Event()
    async with away(postgres_lab.url, lease="60s", beat="0.5s", poll="60s") as (app, proxy):

        @app.job
        async def work(wait: bool) -> int:
            if wait:
                await go.wait()
            return 7

        async with app.worker(concurrency=2):
            first = await work.aenqueue(True)
            await until(lambda: postgres_lab.sql("SELECT 1 FROM {}jobs WHERE status = 'running'") != [])

            proxy.refuse()
            go.set()
            await until(lambda: "finished jobs wait for the database" in caplog.text and "listener:" in caplog.text)
            proxy.heal()

            assert await first.aresult(timeout=LIMIT) == 7  # the finish did not wait out its hour
            await until(lambda: postgres_lab.sql(LISTENING) != [])  # and the listener did not
            assert await (await work.aenqueue(False)).aresult(timeout=LIMIT) == 7

    assert noise(caplog) == []


LISTENING = """
SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%' AND state = 'idle'
"""


async def test_nothing_is_said_to_work_again_that_does_not(
    postgres_lab: FaultLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "windlass")
    uniform = random.uniform
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.02 if low == 0.01 else uniform(low, high))
    settings = {"lease": "2s", "beat": "0.5s", "margin": "0.5s", "poll": "0.1s"}
    async with away(postgres_lab.url, **settings) as (app, proxy):

        @app.job
        async def work() -> int:
            return 7

        async with app.worker():
            assert await (await work.aenqueue()).aresult(timeout=LIMIT) == 7
            proxy.refuse()
            await until(lambda: "lost its leases" in caplog.text and caplog.text.count("cannot register") >= 20)
            assert [line for line in caplog.messages if "works again" in line] == []

            proxy.heal()
            assert await (await work.aenqueue()).aresult(timeout=LIMIT) == 7
            await until(lambda: "discovery works again" in caplog.messages)

    assert noise(caplog) == []
    first, *between, last = [line for line in warnings(caplog) if line.startswith("the database")]
    assert not any("trying again in" in line for line in warnings(caplog))  # no service logs it by itself
    assert first.startswith("the database is away: ")
    assert all(line.startswith("the database is away for ") for line in between)  # a line after 10 s, none in between
    assert last.startswith("the database answers again, after ")


def test_an_outage_is_logged_at_growing_intervals_and_once_for_all_services(caplog: pytest.LogCaptureFixture) -> None:
    """Given three services that fail every second, when an outage lasts 75 seconds, then it has five lines."""
    clock = ManualClock()
    contact = Contact(clock)
    for _ in range(75):
        for _ in ("discovery", "sweeper", "leader"):
            contact.failed(StoreUnavailable("connection refused"), "discovery")
        clock.advance(1)
    contact.answered()
    contact.answered()

    assert warnings(caplog) == [
        "the database is away: connection refused; trying again until it answers",
        "the database is away for 10s, after 31 tries: connection refused",
        "the database is away for 30s, after 91 tries: connection refused",
        "the database is away for 1m10s, after 211 tries: connection refused",
        "the database answers again, after 1m15s and 225 tries",
    ]


def test_a_database_that_comes_and_goes_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Given failures and answers in turn, when a minute passes, then only few of the outages have lines."""
    clock = ManualClock()
    contact = Contact(clock)
    for _ in range(60):
        contact.failed(TimeoutError(), "discovery")
        clock.advance(0.5)
        contact.answered()
        clock.advance(0.5)

    assert [line.partition(" again")[0] for line in warnings(caplog)] == [
        "the database is away: TimeoutError; trying",
        "the database answers",
    ] * 3

    clock.advance(61)  # calm: the next outage is logged at once
    contact.failed(TimeoutError(), "discovery")
    assert len(warnings(caplog)) == 7


def test_an_outage_after_a_long_one_has_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """Given an outage of twenty minutes, when another one begins fifty seconds after its end, then it is logged."""
    clock = ManualClock()
    contact = Contact(clock)
    for _ in range(1_200):
        contact.failed(StoreUnavailable("connection refused"), "discovery")
        clock.advance(1)
    contact.answered()
    clock.advance(50)
    before = len(warnings(caplog))
    contact.failed(StoreUnavailable("connection refused"), "discovery")
    contact.answered()

    assert [line.partition(" again")[0] for line in warnings(caplog)[before:]] == [
        "the database is away: connection refused; trying",
        "the database answers",
    ]


def test_a_busy_database_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    contact = Contact(ManualClock())

    contact.failed(StoreBusy("a statement took longer than 15 s"), "sweeper")
    contact.answered()

    assert warnings(caplog) == ["sweeper: a statement took longer than 15 s; trying again"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What Windlass logged at WARNING and above."""
    return [line.getMessage() for line in caplog.records if line.name == "windlass" and line.levelno >= logging.WARNING]


def test_pauses_are_short_while_the_database_answers() -> None:
    contact = Contact(SystemClock())
    assert max(contact.pause(9) for _ in range(200)) > 1.0  # it was never delivered

    contact.beat(through=True)
    assert max(contact.pause(9) for _ in range(200)) <= 1.0

    contact.beat(through=False)
    contact.answered_at -= 60
    assert max(contact.pause(9) for _ in range(200)) > 1.0
    contact.answered()
    assert max(contact.pause(9) for _ in range(200)) <= 1.0

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
from windlass.store.contact import Contact

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
    caplog.set_level(logging.INFO)
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
    caplog.set_level(logging.INFO)
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

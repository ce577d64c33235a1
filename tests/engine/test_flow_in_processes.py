"""Steps, children and waits of handlers that run in a process of their own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from windlass import JobType, State
from windlass.client import Client

from .programs import flow
from .rig import PATIENCE, Database, in_state, working


@pytest_asyncio.fixture(loop_scope="session")
async def program(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The program on this story's database."""
    settings = flow.app.settings.with_(url=database.url, poll=0.1, grace=5.0, cancel_grace=0.2)
    client = Client(settings, flow.app.clock)
    monkeypatch.setattr(flow.app, "settings", settings)
    monkeypatch.setattr(flow.app, "_client", client)
    yield
    await client.aclose()


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("kind", [flow.coroutine, flow.plain])
async def test_everything_works_there_too(database: Database, kind: JobType[[], list[Any]]) -> None:
    async with working(flow.app):
        job = await kind.aenqueue()
        await job.asignal("word", {"said": "early"})
        assert await job.aresult(timeout=PATIENCE) == [[0, 2, 4], True, {"said": "early"}, 1]

    assert (await database.effects(), await database.jobs()) == ([1, 2], 5)


@pytest.mark.usefixtures("program")
async def test_a_handler_that_is_a_class_runs_there() -> None:
    async with working(flow.app):
        number, pid = await (await flow.Apart.aenqueue(3)).aresult(timeout=PATIENCE)

    assert (number, pid != os.getpid()) == (3, True)


@pytest.mark.usefixtures("program")
async def test_a_wide_fan_out_fits_through_the_socket(database: Database) -> None:
    async with working(flow.app, concurrency=100):
        job = await flow.wide.aenqueue(2_000, padding=3_000)
        assert await job.aresult(timeout=60) == 2_000 * 1_999

    assert await database.jobs() == 2_001


@pytest.mark.usefixtures("program")
async def test_a_step_is_not_run_again_after_the_crash_of_its_attempt(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with working(flow.app):
        job = await flow.crashes.aenqueue(str(ledger))
        assert await job.aresult(timeout=PATIENCE) == "charged"
        record = await in_state(job, State.SUCCEEDED)

    assert (ledger.read_text(), record.attempt, record.crashes) == ("charged\n", 1, 1)


@pytest.mark.usefixtures("program")
async def test_phases_and_children_have_their_limits_there_too(database: Database) -> None:
    async with working(flow.app):
        jobs = [await flow.site.aenqueue("a.org") for _ in range(2)]
        results = [await job.aresult(timeout=PATIENCE) for job in jobs]
        for job in jobs:
            (link,) = await flow.app._client.aask(lambda store, id=job.id: store.links(id))  # type: ignore[misc]
            assert await (await flow.app.afind(link.id)).aresult(timeout=PATIENCE) == ["n:3"]
        rows = await flow.app._client.aask(lambda store: store.limits())

    assert results == [[["fetching"], ["domain:a.org"]]] * 2
    assert {row.key: row.used for row in rows} == {"fetching": 0, "domain:a.org": 0, "n:3": 0}
    assert await database.effects() == [1, 1]

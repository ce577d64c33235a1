"""What `/metrics` of the web server says of the store and of the broker, against counts made there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx2 as httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cli.conftest import Running
from engine.brokers import Broker
from engine.conftest import broker
from engine.rig import PATIENCE, Database, eventually
from web.rig import serving
from windlass.model.delivery import DeliveryMode
from windlass.transport.protocol import Level, Message
from windlass.web.service import scrapes

from .tracing_rig import make_app

__all__ = ["broker"]

PROGRAM = """
import pathlib, time
from windlass import SyncContext, Windlass, fixed

app = Windlass(poll="100ms", lease="3s", sweep="200ms", grace="1s")

@app.job(max_attempts=2, retry=fixed("10ms"))
def work(ctx: SyncContext, n: int) -> int:
    if n % 4 == 3:
        raise ValueError("no")
    while n % 4 == 2 and not pathlib.Path(__file__).with_name("released").exists():
        time.sleep(0.02)
    return n
"""

Samples = dict[tuple[str, str], float]


async def scrape(origin: str) -> Samples:
    """Each sample by its name and the values of its labels."""
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        answer = await client.get(f"{origin}/metrics")
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, " ".join(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def holds_rescued(found: Samples) -> bool:
    return found["windlass_jobs_rescued_total", ""] == 10 and found["windlass_processors", "default busy"] > 0


@pytest.mark.slow
async def test_metrics_are_the_counts_in_the_database_after_workers_were_killed(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given two workers that are killed amid their jobs, when a third ends these, then rows and metrics agree."""
    monkeypatch.setattr(scrapes, "READ_FOR", 0.0)
    (tmp_path / "program.py").write_text(PROGRAM)
    app = database.app()

    @app.job(max_attempts=2)
    def work(n: int) -> int:
        return n

    await app.aenqueue_many(work.call(n) for n in range(40))
    workers: list[Running] = []

    def start() -> str:
        environment = {"WINDLASS_URL": database.url, "WINDLASS_METRICS_PORT": "0", "PYTHONPATH": str(tmp_path)}
        environment |= {"WINDLASS_LEASE": "5s", "WINDLASS_SWEEP": "1s"}  # a rescue is waited for twice
        workers.append(Running(("worker", "program.py"), tmp_path, environment))
        return workers[-1].expect(r"at (http://\S+)")[1]

    def kill() -> None:
        workers[-1].process.kill()
        workers[-1].wait()

    try:
        async with serving(app, local=True) as served:
            await asyncio.to_thread(start)
            # All others have ended: at a kill amid their attempts, it would hold more than these ten.
            left = "SELECT status, count(*) FROM {0}jobs WHERE status <> 'dead' GROUP BY status"
            await eventually(lambda: database.run(left), lambda found: list(map(tuple, found)) == [("running", 10)])
            await asyncio.to_thread(kill)
            during = await scrape(served.origin)
            second = await asyncio.to_thread(start)
            await eventually(lambda: scrape(second), holds_rescued)
            await asyncio.to_thread(kill)
            (tmp_path / "released").touch()
            last = await asyncio.to_thread(start)
            open_jobs = "SELECT count(*) FROM {0}jobs WHERE status NOT IN ('dead')"
            await eventually(lambda: database.run(open_jobs), lambda found: found[0][0] == 0)
            after, of_last = await scrape(served.origin), await scrape(last)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.wait()

    succeeded, rescues = (await database.run("SELECT count(*), sum(rescues) FROM {0}history"))[0]
    dead, attempts = (await database.run("SELECT count(*), sum(attempt) FROM {0}jobs WHERE status = 'dead'"))[0]
    assert (succeeded, dead, attempts) == (30, 10, 20)
    assert after["windlass_store_jobs", "default dead"] == dead
    assert after["windlass_store_jobs", "default queued"] == after["windlass_store_jobs", "default running"] == 0
    ends = {end: after["windlass_store_attempts_last_hour", f"{end} default default"] for end in ("succeeded", "dead")}
    assert ends == {"succeeded": succeeded, "dead": dead}
    assert after["windlass_store_attempts_last_hour", "failed default default"] == 10
    assert of_last["windlass_attempts_total", "succeeded default  default work"] == 10
    assert of_last["windlass_jobs_rescued_total", ""] == rescues - 10 > 0
    # On a machine that is busy for the length of a lease, a live worker is declared dead as well.
    assert of_last["windlass_worker_deaths_total", ""] >= 1
    assert during["windlass_store_jobs", "default running"] == 10


async def test_metrics_have_the_outbox_and_what_the_broker_holds(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given jobs in the outbox, messages without a worker and dead letters, when scraped, then each is counted."""
    monkeypatch.setattr(scrapes, "READ_FOR", 0.0)
    database = Database(url=await migrated(tmp_path), dialect="sqlite")
    app = make_app(database.url, broker=broker.url)

    @app.job(queue="mail")
    def send(n: int) -> int:
        return n

    await app._client.aask(lambda store: store.set_delivery(DeliveryMode.OUTBOX))
    jobs = [await send.aenqueue(n) for n in range(4)]
    messages = [Message(job=job.id, queue="mail", level=Level.NORMAL, payload=b"{}") for job in jobs[:3]]
    async with broker.opened() as dispatcher:
        await dispatcher.dispatch(messages)
        await dispatcher.bury([(each, "no worker knows it") for each in messages[:2]])
    async with serving(app, local=True) as served:
        ready = ("windlass_store_broker_messages", "mail ready")
        found = await eventually(lambda: scrape(served.origin), lambda found: found.get(ready) == 3)
    await app.aclose()

    assert found["windlass_store_broker_dead_letters", ""] == 2
    assert found["windlass_store_broker_up", ""] == 1
    assert found["windlass_store_broker_consumers", "mail"] == 0
    rows = await database.run("SELECT count(*) FROM {0}outbox")
    assert found["windlass_store_outbox_due", ""] == rows[0][0] == 4
    assert found["windlass_store_outbox_lag_seconds", ""] > 0


@pytest.mark.parametrize("scheme", ["amqp", "redis"])
async def test_a_broker_that_is_away_takes_no_other_metric_with_it(tmp_path: Path, scheme: str) -> None:
    app = make_app(await migrated(tmp_path), broker=f"{scheme}://user:c4n4ry@127.0.0.1:9/0")
    async with serving(app, local=True) as served:
        found = await scrape(served.origin)
    await app.aclose()

    assert found["windlass_store_broker_up", ""] == 0
    assert ("windlass_store_workers", "idle") in found
    assert not any(re.match("windlass_store_broker_(messages|dead)", name) for name, _ in found)


async def migrated(folder: Path) -> str:
    from windlass.testing.databases import write_migrated_file

    write_migrated_file(folder / "jobs.db")
    return f"sqlite:///{folder / 'jobs.db'}"

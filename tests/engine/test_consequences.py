"""What follows an end: inserted with it, once, in every way to end a job."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from windlass import Context, Dead, State, Windlass, fixed
from windlass.declare.jobtype import JobType
from windlass.errors import UnknownType
from windlass.model.filter import parse
from windlass.model.job import Job
from windlass.store.protocol import Claim, NewWorker
from windlass.testing.clock import ManualClock

from .rig import PATIENCE, Database, come, ended, eventually, in_state, opened, working


class Works:
    """A type with a follow-up for every end, and what those received."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.received: list[tuple[str, dict[str, Any]]] = []
        self.begun, self.go = asyncio.Event(), asyncio.Event()

        @app.job
        async def bury(id: str, input: dict[str, Any], output: Any, error: dict[str, Any] | None) -> None:
            self.received.append(("bury", {"id": id, "input": input, "output": output, "error": error}))

        @app.job
        async def sweep_up(ctx: Context, id: str) -> None:
            self.received.append(("sweep_up", {"id": id}))

        @app.job(queue="thanks", priority=7, max_attempts=9)
        async def thank(output: int, id: str = "?") -> None:
            self.received.append(("thank", {"id": id, "output": output}))

        @app.job(on_dead=bury, on_cancelled="sweep_up", on_succeeded=thank, max_attempts=2, retry=fixed(0))
        async def work(how: str) -> int:
            if how == "dead":
                raise Dead("no use")
            if how == "raise":
                raise ValueError("always")
            if how == "wait":
                self.begun.set()
                await come(self.go)
            return len(how)

        self.work: JobType[[str], int] = work

    async def follow_ups(self) -> list[Job]:
        """All that there are, in the order in which they came."""
        store = await opened(self.app)
        try:
            return sorted(await store.search(parse("-type:work")), key=lambda job: (job.created_at, job.id))
        finally:
            await store.close()


@pytest.fixture
def works(app: Windlass) -> Works:
    return Works(app)


async def test_each_end_brings_its_own_follow_up_with_what_it_names(works: Works) -> None:
    good, dead, tired, stopped = [await works.work.aenqueue(how) for how in ("good", "dead", "raise", "wait")]
    async with working(works.app):
        await come(works.begun)
        await stopped.acancel()
        for job in (good, dead, tired, stopped):
            await ended(job)
        for follow_up in await works.follow_ups():  # they came with the ends
            await ended(await works.app.afind(follow_up.id))

    received = {(name, arguments["id"]): arguments for name, arguments in works.received}
    assert received.keys() == {
        ("thank", str(good.id)),
        ("bury", str(dead.id)),
        ("bury", str(tired.id)),
        ("sweep_up", str(stopped.id)),
    }
    assert len(works.received) == 4
    assert received["thank", str(good.id)]["output"] == 4
    buried, worn = received["bury", str(dead.id)], received["bury", str(tired.id)]
    assert (buried["input"], buried["output"]) == ({"how": "dead"}, None)
    assert buried["error"]["message"] == "no use"
    assert (worn["error"]["type"], worn["error"]["attempt"]) == ("ValueError", 2)


async def test_a_follow_up_has_its_own_types_options_and_its_tenant_from_the_job(works: Works) -> None:
    job = await works.work.options(tenant="acme", priority=3).aenqueue("good")

    async with working(works.app, types=["work"]):
        await ended(job)

    (thank,) = await works.follow_ups()
    assert (thank.type, thank.queue, thank.priority, thank.max_attempts) == ("thank", "thanks", 7, 9)
    assert (thank.tenant, thank.status, thank.parent) == ("acme", State.QUEUED, None)


async def test_an_operators_cancel_brings_it_at_once_and_no_program_is_needed(works: Works) -> None:
    queued, delayed = await works.work.aenqueue("good"), await works.work.options(delay="1h").aenqueue("good")
    operator = Windlass(works.app.settings.url)  # knows no job type at all
    try:
        for job in (queued, delayed):
            assert await (await operator.afind(job.id)).acancel() is State.CANCELLED
    finally:
        await operator.aclose()

    found = await works.follow_ups()
    assert [(job.type, job.arguments()) for job in found] == [
        ("sweep_up", {"id": str(job.id)}) for job in (queued, delayed)
    ]


async def test_a_condemned_job_is_followed_though_the_sweeper_has_no_program(still_database: Database) -> None:
    clock = ManualClock()
    app = still_database.app(clock=clock, max_crashes=1)
    works = Works(app)
    job = await works.work.aenqueue("wait")
    store = await opened(app)
    try:
        await claim_and_die(still_database, clock, store)
        swept = await store.sweep(max_crashes=1)
        assert swept.dead_after_crashes == 1
    finally:
        await store.close()

    assert await job.astatus() is State.DEAD
    (bury,) = await works.follow_ups()
    assert (bury.type, bury.arguments()["id"], bury.arguments()["input"]) == ("bury", str(job.id), {"how": "wait"})


async def claim_and_die(database: Database, clock: ManualClock, store: Any) -> None:
    """A worker claims what is there, and dies."""
    worker = uuid4()
    await store.register(
        NewWorker(id=worker, name="host:1", lease=30.0, queues=None, types=("work",), concurrency=1, isolates=False)
    )
    claimed = await store.claim(Claim(worker=worker, room=10, types=("work",), rescan=True))
    assert len(claimed.jobs) == 1
    clock.advance(31)
    await database.move(clock)


async def test_a_replay_that_dies_again_is_followed_again(works: Works) -> None:
    job = await works.work.aenqueue("dead")
    async with working(works.app, types=["work"]):
        await in_state(job, State.DEAD)
        assert len(await works.follow_ups()) == 1
        await job.areplay()
        await ended(job)

    assert [job.type for job in await works.follow_ups()] == ["bury", "bury"]


async def test_a_finish_in_the_handlers_transaction_brings_it_along(app: Windlass, database: Database) -> None:
    @app.job
    async def thank(output: int) -> None: ...

    @app.job(on_succeeded=thank)
    async def write(ctx: Context, n: int) -> int:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO effects VALUES ($1)", n)
        return n

    async with working(app, types=["write"]):
        assert await (await write.aenqueue(5)).aresult(timeout=PATIENCE) == 5

    assert await database.effects() == [5]
    rows = await database.run("SELECT CAST(input AS text) FROM {}jobs WHERE type = 'thank'")
    assert [msgspec.json.decode(row[0]) for row in rows] == [{"output": 5}]


async def test_a_chain_goes_on_and_a_type_that_follows_itself_does_so_once(app: Windlass) -> None:
    ran: list[str] = []

    def link(name: str, next: str) -> JobType[[str], str]:
        @app.job(type=name, on_succeeded=next)
        async def handler(output: str) -> str:
            ran.append(name)
            return f"{output}{name}"

        return handler

    first = link("a", "b")
    link("b", "c")
    link("c", "a")

    async with working(app):
        await first.aenqueue("")
        await eventually(app.acounts, lambda counts: counts[State.SUCCEEDED] == 4)

    assert ran == ["a", "b", "c", "a"]
    assert sum((await app.acounts()).values()) == 4


async def test_a_follow_up_whose_hints_do_not_fit_is_a_dead_job_and_no_hang(app: Windlass) -> None:
    @app.job(max_attempts=1)
    async def thank(output: int) -> None: ...

    @app.job(on_succeeded=thank)
    async def work() -> str:
        return "not a number"

    async with working(app):
        await (await work.aenqueue()).aresult(timeout=PATIENCE)
        await eventually(app.acounts, lambda counts: counts[State.DEAD] == 1)


async def test_many_jobs_have_as_many_follow_ups(works: Works, database: Database) -> None:
    jobs = await works.app.aenqueue_many(works.work.call("good") for _ in range(200))
    async with working(works.app, concurrency=50):
        await eventually(works.app.acounts, lambda counts: counts[State.SUCCEEDED] == 400)

    assert sorted(arguments["id"] for _, arguments in works.received) == sorted(str(job.id) for job in jobs)
    assert await database.jobs() == 400


async def test_a_follow_up_of_an_unknown_type_refuses_the_enqueue(app: Windlass) -> None:
    @app.job(on_dead="nobody")
    async def work(n: int) -> None: ...

    with pytest.raises(UnknownType, match="on_dead of 'work': no job type 'nobody'"):
        await work.aenqueue(1)
    assert sum((await app.acounts()).values()) == 0

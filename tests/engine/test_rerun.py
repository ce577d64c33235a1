"""Re-run: a copy of a job with attempts from zero, and the old job is discarded together with it or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from windlass import Dead, InvalidInput, JobHandle, State, TransitionRefused, UnknownType, Windlass
from windlass import limit as limited
from windlass.errors import JobNotFound
from windlass.model.state import Verb

from .rig import PATIENCE, Database, in_state, working

OPERATORS = 8


def declare(app: Windlass) -> None:
    @app.job(queue="mail", max_attempts=3, unique="to", limits=[limited("to", 2)], on_dead="alarm")
    async def send(to: str) -> str:
        if "@" not in to:
            raise Dead("no address")
        return to

    @app.job
    async def alarm(id: str) -> None: ...

    @app.job(queue="web")
    async def fetch(url: str) -> str:
        return url

    @app.job(queue="cpu")
    async def parse(url: str) -> int:
        if url == "bad":
            raise Dead("no page")
        return len(url)

    app.pipeline("site", fetch, parse)


@pytest.fixture
def app(database: Database) -> Windlass:
    app = database.app()
    declare(app)
    return app


async def dead(app: Windlass, name: str = "send", **input: Any) -> JobHandle[Any]:
    from windlass import NamedCall

    [job] = await app.aenqueue_named([NamedCall(name, input or {"to": "ann"}, {"tenant": "acme", "priority": 5})])
    async with working(app):
        await in_state(job, State.DEAD)
    return job


async def actions(app: Windlass, job: JobHandle[Any]) -> list[tuple[str, str | None]]:
    return [(row.action, row.actor) for row in reversed(await app.aaudit(job=job.id))]


async def test_a_dead_job_is_run_again_with_another_input(app: Windlass) -> None:
    old = await dead(app)

    new = await (await app.afind(old.id)).arerun({"to": "ann@example.org"})

    record, before = await new.arecord(), await old.arecord()
    assert (record.copied_from, record.attempt, record.status) == (old.id, 0, State.QUEUED)
    assert (record.type, record.queue, record.tenant, record.priority) == ("send", "mail", "acme", 5)
    assert (record.max_attempts, record.key, record.limits) == (3, "ann@example.org", ["to:ann@example.org"])
    assert record.follow_ups == before.follow_ups is not None
    assert before.status is State.DEAD
    assert (await actions(app, old))[-1] == ("JOB_RERUN", app.settings.acting)
    async with working(app):
        assert await new.aresult(timeout=PATIENCE) == "ann@example.org"


async def test_a_copy_without_a_new_input_is_the_same_job_again(app: Windlass) -> None:
    old = await dead(app)

    record = await (await old.arerun()).arecord()

    assert (record.arguments(), record.key, record.limits) == ({"to": "ann"}, "ann", ["to:ann"])


async def test_a_given_key_and_given_limits_stay(app: Windlass) -> None:
    from windlass import NamedCall

    options = {"key": "mine", "limits": {"to": "shared"}, "queue": "slow", "max_attempts": 9}
    [old] = await app.aenqueue_named([NamedCall("send", {"to": "a@b"}, options)])
    await old.acancel()

    record = await (await old.arerun()).arecord()

    assert (record.key, record.limits, record.queue, record.max_attempts) == ("mine", ["to:shared"], "slow", 9)


async def test_an_input_that_does_not_fit_is_refused(app: Windlass) -> None:
    old = await dead(app)

    with pytest.raises(InvalidInput) as refused:
        await old.arerun({"to": 5}, discard=True)

    assert refused.value.path == "$.to"
    assert await old.astatus() is State.DEAD


async def test_a_pipeline_begins_with_its_first_phase(app: Windlass, database: Database) -> None:
    old = await dead(app, "site", url="bad")
    assert (await old.arecord()).phase == "parse"

    copies = [
        await old.arerun({"url": "good"}),
        await JobHandle[Any](database.app()._client, old.id).arerun({"url": "abc"}),
    ]

    for new in copies:
        record = await new.arecord()
        assert (record.pipeline, record.phase, record.type, record.queue) == ("site", "fetch", "fetch", "web")
    async with working(app):
        assert [await new.aresult(timeout=PATIENCE) for new in copies] == [4, 3]


async def test_without_its_program_a_later_phase_cannot_be_copied(app: Windlass, database: Database) -> None:
    old = await dead(app, "site", url="bad")
    await database.run(f"DELETE FROM {'windlass.' if 'postgres' in database.url else 'windlass_'}types")

    with pytest.raises(UnknownType, match="phase 'parse'"):
        await JobHandle[Any](database.app()._client, old.id).arerun()


async def test_without_its_program_an_input_is_copied_as_it_is(app: Windlass, database: Database) -> None:
    """The type has follow-ups, so that what its worker announced is not enough."""
    old = await dead(app)

    record = await (await JobHandle[Any](database.app()._client, old.id).arerun({"to": "x@y"})).arecord()

    assert (record.arguments(), record.queue, record.limits) == ({"to": "x@y"}, "mail", ["to:ann"])


async def test_discard_removes_the_old_job_with_the_copy(app: Windlass) -> None:
    old = await dead(app)

    new = await old.arerun({"to": "a@b"}, discard=True)

    with pytest.raises(JobNotFound):
        await old.arecord()
    assert (await new.arecord()).copied_from == old.id
    assert [action for action, _ in await actions(app, old)][-2:] == ["JOB_RERUN", "JOB_DISCARDED"]


async def test_a_job_that_was_replayed_meanwhile_is_not_discarded_and_not_copied(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race: the operator reads a dead job, another one replays it, and then the first one's copy is written."""
    old = await dead(app)
    read = JobHandle._find
    before = await app.acounts()

    async def read_and_replay(self: JobHandle[Any], store: Any) -> Any:
        job = await read(self, store)
        await store.operate(Verb.REPLAY, old.id)
        return job

    monkeypatch.setattr(JobHandle, "_find", read_and_replay)
    with pytest.raises(TransitionRefused, match="cannot discard"):
        await old.arerun({"to": "a@b"}, discard=True)
    monkeypatch.undo()

    assert await old.astatus() is State.QUEUED
    assert sum((await app.acounts()).values()) == sum(before.values())
    assert "JOB_RERUN" not in [action for action, _ in await actions(app, old)]


async def test_of_many_operators_one_discards_and_copies(database: Database, app: Windlass) -> None:
    old = await dead(app)
    before = sum((await app.acounts()).values())
    apps = [database.app() for _ in range(OPERATORS)]

    answers = await asyncio.gather(
        *(JobHandle[Any](each._client, old.id).arerun({"to": "a@b"}, discard=True) for each in apps),
        return_exceptions=True,
    )

    assert sum(isinstance(answer, JobHandle) for answer in answers) == 1
    assert all(isinstance(answer, (JobHandle, JobNotFound, TransitionRefused)) for answer in answers), answers
    assert sum((await app.acounts()).values()) == before


async def test_a_key_of_another_job_refuses_the_copy_and_the_discard(app: Windlass) -> None:
    from windlass import NamedCall

    old = await dead(app)
    [holder] = await app.aenqueue_named([NamedCall("send", {"to": "a@b"}, {"tenant": "acme"})])
    before = await app.acounts()

    with pytest.raises(TransitionRefused, match=f"'a@b' of its copy belongs to job {holder.id}"):
        await old.arerun({"to": "a@b"}, discard=True)

    assert await app.acounts() == before
    assert await old.astatus() is State.DEAD

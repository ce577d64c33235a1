"""Announced types: a process without the program enqueues what workers announced, and checks it by their schemas."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from windlass import EnqueueError, InvalidInput, InvalidOption, NamedCall, TypeRow, UnknownType, Windlass, unique
from windlass import limit as limited

from .rig import PATIENCE, Database, eventually, working


def declare(app: Windlass) -> None:
    @app.job(queue="mail", priority=3, max_attempts=7, timeout="5m", unique=["to", "kind"], limits=[limited("to", 2)])
    async def send(to: str, copies: int = 1, kind: str = "plain") -> str:
        """Send one message.

        And nothing else.
        """
        return to * copies

    @app.job
    async def fetch(url: str) -> str:
        return url

    @app.job
    async def parse(url: str) -> int:
        return len(url)

    @app.job(unique=lambda url: url)
    async def by_function(url: str) -> None: ...

    @app.job(limits=[limited("site", 2, key=lambda url: url)])
    async def limited_by_function(url: str) -> None: ...

    @app.job(on_dead="fetch_again")
    async def followed(url: str) -> None: ...

    @app.job
    async def fetch_again(id: str) -> None: ...

    @app.job(unique="at")
    async def by_time(at: datetime) -> None: ...

    app.pipeline("site", fetch, parse)


async def announced(database: Database) -> Windlass:
    """An app without job types, on a database where a worker has announced some."""
    program = database.app()
    declare(program)
    async with working(program):
        pass
    return database.app()


def by_name(rows: list[TypeRow]) -> dict[str, TypeRow]:
    return {row.name: row for row in rows}


async def test_a_process_that_only_enqueues_makes_the_job_that_the_program_makes(database: Database) -> None:
    program, empty = database.app(), database.app()
    declare(program)
    async with working(program):
        [job] = await empty.aenqueue_named([NamedCall("send", {"to": "ann", "copies": 2}, {"tenant": "acme"})])

        assert await job.aresult(timeout=PATIENCE) == "annann"

        [again] = await program.aenqueue_named([NamedCall("send", {"to": "ann", "copies": 3}, {"tenant": "acme"})])
        assert (again, again.existing) == (job, True)
    record = await job.arecord()
    assert (record.queue, record.priority, record.max_attempts, record.tenant) == ("mail", 3, 7, "acme")
    assert record.limits == ["to:ann"]


async def test_a_pipeline_is_enqueued_without_its_program(database: Database) -> None:
    program, empty = database.app(), database.app()
    declare(program)
    async with working(program):
        [job] = await empty.aenqueue_named([NamedCall("site", {"url": "abc"})])

        assert await job.aresult(timeout=PATIENCE) == 3


@pytest.mark.parametrize(
    ("call", "kind", "path"),
    [
        (NamedCall("send", {"to": 5}), InvalidInput, "$.input.to"),
        (NamedCall("send", {}), InvalidInput, "$.input.to"),
        (NamedCall("send", {"to": "a", "cc": "b"}), InvalidInput, "$.input.cc"),
        (NamedCall("send", {"to": "a\0"}), InvalidInput, "$.input.to"),
        (NamedCall("send", {"to": "a"}, {"queu": "x"}), InvalidOption, "$.options"),
        (NamedCall("send", {"to": "a"}, {"unique": "copies"}), InvalidOption, "$.options"),
        (NamedCall("send", {"to": "a"}, ["x"]), InvalidOption, "$.options"),  # type: ignore[arg-type]
    ],
)
async def test_a_call_that_does_not_fit_what_was_announced_is_refused(
    database: Database, call: NamedCall, kind: type[EnqueueError], path: str
) -> None:
    app = await announced(database)

    with pytest.raises(kind) as refused:
        await app.aenqueue_named([call])

    assert refused.value.path == path
    assert sum((await app.acounts()).values()) == 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("by_function", "its unique key is made by a function"),
        ("limited_by_function", "limit 'site' is made by a function"),
        ("followed", "it has follow-ups"),
        ("by_time", "made of the argument 'at'"),
    ],
)
async def test_what_only_its_program_can_enqueue_is_refused_with_the_reason(
    database: Database, name: str, reason: str
) -> None:
    app = await announced(database)

    assert reason in str(by_name(await app.ajob_types())[name].local_only)
    with pytest.raises(EnqueueError, match=reason):
        await app.aenqueue_named([NamedCall(name, {"url": "x"})])


async def test_a_type_that_no_worker_announced_is_unknown(database: Database) -> None:
    app = await announced(database)

    with pytest.raises(UnknownType, match=r"'sned'.*did you mean 'send'\?; start a worker.*windlass worker app.py"):
        await app.aenqueue_named([NamedCall("sned", {})])


async def test_the_list_has_own_and_announced_types_with_their_workers(database: Database) -> None:
    program, other = database.app(), database.app()
    declare(program)

    @other.job
    async def tick() -> None: ...

    assert [(row.name, row.declared_here, row.announced_at) for row in await other.ajob_types()] == [
        ("tick", True, None)
    ]
    async with working(program):
        rows = by_name(await other.ajob_types())
        assert (rows["send"].workers, rows["site"].workers, rows["tick"].workers) == (1, 1, 0)
    await eventually(other.ajob_types, lambda rows: by_name(rows)["send"].workers == 0)
    send = rows["send"]
    assert (send.queue, send.priority, send.max_attempts, send.timeout) == ("mail", 3, 7, 300.0)
    assert (send.description, send.local_only, send.declared_here) == ("Send one message.", None, False)
    assert send.parameters["required"] == ["to"]
    assert send.parameters["properties"]["copies"] == {"type": "integer", "default": 1}
    assert rows["site"].phases == ("fetch", "parse")


async def test_the_last_announcement_counts(database: Database) -> None:
    for name in ("first", "second"):
        app = database.app()

        @app.job(type="send", queue=name)
        async def send() -> None: ...

        async with working(app):
            pass

    [job] = await database.app().aenqueue_named([NamedCall("send")])

    assert (await job.arecord()).queue == "second"


async def test_an_exact_key_is_the_same_with_and_without_the_program(database: Database) -> None:
    """Otherwise two jobs of one key could be enqueued, one by the program and one by name."""
    program, empty = database.app(), database.app()
    values: list[dict[str, Any]] = [
        {"name": "a", "count": 1, "tags": ["x"], "more": {"b": None}},
        {"name": "ü\"'", "count": 2, "tags": [], "more": {}, "note": None},
        {"name": "", "count": -1, "tags": ["y", "z"], "more": {"k": 5}, "note": "n"},
    ]

    @program.job(unique=unique(states="unfinished"))
    async def store(
        name: str, count: int, tags: list[str], more: dict[str, int | None], note: str | None = "d"
    ) -> None: ...

    async with working(program):
        pass
    for value in values:
        first = await store.aenqueue(**value)
        [second] = await empty.aenqueue_named([NamedCall("store", value)])
        assert second == first, value

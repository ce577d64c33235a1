"""Bad input: each kind is refused at the door with its path or cause and the next step, and nothing is written.

Declarations are in test_registry.py, settings in test_config.py, app files in test_program.py, and what a handler
itself returns or raises in test_outcomes.py: that is repaired, never refused. What is refused before any store is asked
is tested on one store only.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass import Windlass
from windlass.errors import (
    EnqueueError,
    InvalidInput,
    InvalidOption,
    JobNotFound,
    SchemaMissing,
    SchemaTooNew,
    StoreCorrupt,
    StoreUnavailable,
)

from .rig import ON_SQLITE, PATIENCE, Database, working


def declare(app: Windlass) -> Any:
    @app.job
    async def work(n: int, data: Any = None) -> int:
        return n

    return work


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@ON_SQLITE
@pytest.mark.parametrize(
    ("args", "kwargs", "path", "words"),
    [
        (("one",), {}, "$.n", "Expected `int`, got `str`"),
        ((), {}, "$.n", "missing required argument 'n'"),
        ((1, 2, 3), {}, "$", "takes 2 arguments but 3 were given"),
        ((1,), {"m": 2}, "$.m", "unexpected keyword argument 'm'"),
        ((1,), {"n": 2}, "$.n", "multiple values for argument 'n'"),
        ((1, "x" * 262_144), {}, "$", "is the most; store it elsewhere and send a reference"),
        ((1, nested(80)), {}, "$.data", "deeper than 64 levels; send it flatter"),
        ((1, {"a": ["ok", "b\0d"]}), {}, "$.data.a[1]", "U+0000"),
        ((1, ["\ud800"]), {}, "$.data[0]", "half a surrogate pair"),
        ((1, {"x": math.nan}), {}, "$.data.x", "nan"),
        ((1, [math.inf]), {}, "$.data[0]", "inf"),
        ((2**63,), {}, "$", "64 bits"),
        ((1, [2**64]), {}, "$.data[0]", "64 bits"),
        ((1, {"k": object()}), {}, "$.data", "object"),
    ],
)
async def test_arguments_that_cannot_be_stored_are_refused_with_their_path(
    app: Windlass, database: Database, args: tuple[Any, ...], kwargs: dict[str, Any], path: str, words: str
) -> None:
    work = declare(app)

    with pytest.raises(InvalidInput) as caught:
        await work.aenqueue(*args, **kwargs)

    assert words in str(caught.value)
    assert caught.value.path.startswith(path)
    assert await database.jobs() == 0


@ON_SQLITE
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prioritty": 1}, "unknown option 'prioritty'; did you mean 'priority'?"),
        ({"countdown": 5}, "unknown option 'countdown'; write: delay=\"10s\""),
        ({"eta": 5}, "unknown option 'eta'; write: run_at=datetime(…, tzinfo=UTC)"),
        (
            {"retries": 3},
            "unknown option 'retries'; write: max_attempts=4 for 3 retries: the first attempt counts, too",
        ),
        ({"timeout": 3}, "unknown option 'timeout'; a job type has it: @app.job(timeout=…)"),
        ({"delay": "1m", "run_at": datetime.now(UTC)}, "delay and run_at both set the time; give one of them"),
        ({"delay": -1}, "negative or not finite"),
        ({"delay": timedelta(seconds=-1)}, "negative or not finite"),
        ({"delay": "soon"}, "delay: 'soon' is not a duration; write it like"),
        ({"run_at": "tomorrow"}, "is not a datetime; for a span from now, use delay="),
        ({"run_at": datetime(2030, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"run_at": datetime(9000, 1, 1, tzinfo=UTC)}, "1970 to 2999"),
        ({"queue": ""}, "queue is empty"),
        ({"queue": "x" * 201}, "queue has 201 characters; 200 is the most"),
        ({"queue": "mail\n"}, "queue begins or ends with white space"),
        ({"tenant": "a\x1bb"}, "tenant contains a control character"),
        ({"key": "a\0b"}, "key contains a control character"),
        ({"key": "\ud800"}, "half a surrogate pair"),
        ({"key": 7}, "key must be text, not int"),
        ({"max_attempts": 0}, "max_attempts=0 is not a whole number from 1"),
        ({"max_attempts": True}, "max_attempts=True"),
        ({"priority": 40_000}, "priority=40000 is not a whole number from -32768 to 32767"),
        ({"priority": 1.5}, "priority=1.5"),
        ({"conn": "postgresql://x"}, "an address is not a connection"),
        ({"conn": object()}, "which cannot carry an enqueue"),
    ],
)
async def test_options_that_make_no_sense_are_refused_each_with_its_sentence(
    app: Windlass, database: Database, options: dict[str, Any], words: str
) -> None:
    work = declare(app)

    with pytest.raises(EnqueueError) as caught:
        await work.options(**options).aenqueue(1)

    assert words in str(caught.value)
    assert isinstance(caught.value, InvalidOption) or "conn" in options
    assert await database.jobs() == 0


async def test_many_of_nothing_and_things_that_are_no_calls_are_refused(app: Windlass, database: Database) -> None:
    work = declare(app)

    for calls, words in [
        ([], "was given no calls; skip it when there is nothing to enqueue"),
        ([work.call(1), 7], "call 1 is int, not a call"),
        ([work.call(1), work], "call 1 is AsyncJob, not a call"),
        (None, "takes calls to iterate over, not NoneType"),
    ]:
        with pytest.raises(EnqueueError, match=words):
            await app.aenqueue_many(calls)  # type: ignore[arg-type]

    assert await database.jobs() == 0


async def test_one_bad_call_among_ten_thousand_is_named_and_nothing_is_written(
    app: Windlass, database: Database
) -> None:
    work = declare(app)

    with pytest.raises(InvalidInput, match=r"call 7321: .*Expected `int`.*nothing was enqueued") as caught:
        await app.aenqueue_many(work.call(n if n != 7_321 else "x") for n in range(10_000))

    assert caught.value.path == "$.n"
    assert await database.jobs() == 0


async def test_a_generator_that_raises_half_way_writes_nothing_and_keeps_its_error(
    app: Windlass, database: Database
) -> None:
    work = declare(app)

    def calls() -> Iterator[Any]:
        yield work.call(1)
        yield work.call(2)
        raise ZeroDivisionError("my own fault")

    with pytest.raises(ZeroDivisionError) as caught:
        await app.aenqueue_many(calls())

    assert caught.value.__notes__ == ["raised by call 2 of enqueue_many(); nothing was enqueued"]
    assert await database.jobs() == 0


@pytest.mark.parametrize("wrong", ["", "7", "not-a-uuid", "01890a5d-ac96-774b-bcce", None, 7, "x" * 10_000])
async def test_an_id_that_is_no_uuid_says_what_one_looks_like(app: Windlass, wrong: Any) -> None:
    with pytest.raises(JobNotFound, match=r"is not a job id: expected a UUID such as [0-9a-f]{8}-"):
        await app.afind(wrong)


async def test_after_all_of_it_the_worker_and_the_client_work(app: Windlass) -> None:
    work = declare(app)

    async with working(app):
        for wrong in ("x", None, 2**70):
            with pytest.raises(InvalidInput):
                await work.aenqueue(wrong)
        with pytest.raises(EnqueueError):
            await app.aenqueue_many([])
        assert await (await work.aenqueue(3)).aresult(timeout=PATIENCE) == 3


# The database itself


async def test_a_database_that_is_down_is_named_without_its_password() -> None:
    app = Windlass("postgresql://me:s3cret@127.0.0.1:1/shop")
    work = declare(app)

    with pytest.raises(
        StoreUnavailable, match=r"127\.0\.0\.1:1/shop.*is PostgreSQL running, and is WINDLASS_URL right"
    ) as caught:
        await work.aenqueue(1)

    assert "s3cret" not in str(caught.value)
    await app.aclose()


async def test_a_database_that_does_not_exist_says_what_to_check(database: Database) -> None:
    url = database.url.rpartition("/")[0] + "/no_such_place/at_all"
    app = Windlass(url)
    work = declare(app)

    with pytest.raises(StoreUnavailable, match=r"(does not exist|WINDLASS_URL)"):
        await work.aenqueue(1)

    await app.aclose()


async def test_without_a_schema_nothing_works_and_the_command_is_named(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/fresh.db")
    work = declare(app)

    with pytest.raises(SchemaMissing, match="windlass migrate"):
        await work.aenqueue(1)

    await app.amigrate()
    assert (await (await work.aenqueue(1)).arecord()).type == "work"
    await app.aclose()


async def test_a_schema_newer_than_the_program_is_refused_and_not_touched(database: Database) -> None:
    await database.run("INSERT INTO {}migrations (number, name) VALUES (999, 'later')")
    app = database.app()
    work = declare(app)

    try:
        with pytest.raises(SchemaTooNew, match=r"is number 999.*will not touch it; upgrade Windlass"):
            await work.aenqueue(1)
        with pytest.raises(SchemaTooNew):
            async with app.worker():
                pass
        with pytest.raises(SchemaTooNew):
            await app.amigrate()
    finally:
        await database.run("DELETE FROM {}migrations WHERE number = 999")

    assert await database.jobs() == 0


async def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary, " * 1_000)
    app = Windlass(f"sqlite:///{tmp_path}/notes.txt")
    work = declare(app)

    with pytest.raises(
        StoreCorrupt, match=r"notes\.txt is not a SQLite database.*restore it from a backup, or name another"
    ):
        await work.aenqueue(1)

    assert (tmp_path / "notes.txt").read_text() == "dear diary, " * 1_000
    await app.aclose()


@ON_SQLITE
async def test_a_read_only_file_says_which_mode_is_missing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write everything: the mode is asked of SQLite itself."""
    from windlass.store.sqlite import session
    from windlass.store.sqlite.connections import file as files

    connect = files.connect

    def read_only(path: Path, **options: Any) -> sqlite3.Connection:
        connection = connect(path, **options)
        connection.execute("PRAGMA query_only = ON")
        return connection

    monkeypatch.setattr(session, "connect", read_only)
    app = database.app()
    work = declare(app)

    with pytest.raises(StoreCorrupt, match=r"jobs\.db is read-only, and jobs have to be written; run: chmod u\+w"):
        await work.aenqueue(1)

    with closing(sqlite3.connect(database.url.removeprefix("sqlite:///"))) as connection:
        assert connection.execute("SELECT count(*) FROM windlass_jobs").fetchone() == (0,)

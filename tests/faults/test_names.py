"""Names that mean something elsewhere: a queue named like a message, a schema named like the catalogue's functions."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from windlass import Context, State, Windlass

from .rig import FaultLab

LIMIT = 30.0  # seconds until a story gives up

HOSTILE = """
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz';
CREATE FUNCTION hostile.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'hostile'; END$$;
CREATE FUNCTION hostile.to_regclass(text) RETURNS regclass LANGUAGE sql AS 'SELECT NULL::regclass';
CREATE FUNCTION hostile.pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT 0';
CREATE FUNCTION hostile.never(uuid, uuid) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR hostile.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = hostile.never);
CREATE FUNCTION hostile.never(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR hostile.= (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile.never);
DO $$BEGIN EXECUTE format(
    'ALTER DATABASE %I SET search_path = hostile, pg_catalog, "$user", public', current_database());
END$$
"""


@pytest.mark.parametrize("name", ["cancel:x", "gates:"])
async def test_a_queue_may_be_named_like_a_message(lab: FaultLab, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    app = Windlass(lab.url, poll="60s", grace="1s")

    @app.job(queue=name)
    async def work(n: int) -> int:
        return n

    async with app.worker():
        for n in range(3):  # an idle worker is woken for each, before its next poll
            assert await (await work.aenqueue(n)).aresult(timeout=LIMIT) == n
    await app.aclose()

    assert [record.getMessage() for record in caplog.records if "listener" in record.getMessage()] == []


async def test_a_message_that_nobody_understands_ends_nothing(
    postgres_lab: FaultLab, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    app = Windlass(postgres_lab.url, poll="60s", grace="1s")

    @app.job
    async def work(n: int) -> int:
        return n

    async with app.worker():
        assert await (await work.aenqueue(0)).aresult(timeout=LIMIT) == 0
        for message in ("cancel:x", "\x1fcancel:x", "\x1f", ""):
            await app.awake(message)
        assert await (await work.aenqueue(1)).aresult(timeout=LIMIT) == 1
    await app.aclose()

    assert [record.getMessage() for record in caplog.records if "listener" in record.getMessage()] == []


def test_a_path_with_other_schemas_before_the_catalogue_changes_nothing(postgres_lab: FaultLab) -> None:
    lab = postgres_lab
    lab.sql(HOSTILE)
    jobs = lab.enqueue("effect", 5) + lab.enqueue("plain", 5)
    worker = lab.start()
    lab.until_final(jobs)

    assert lab.counts() == {State.SUCCEEDED: len(jobs)}, worker.output()
    lab.check_effects(jobs[:5])
    assert worker.ended() is None
    assert worker.output() == ""


async def test_a_path_without_the_catalogue_stays_the_handlers_own(postgres_lab: FaultLab) -> None:
    app = Windlass(postgres_lab.url, poll="0.1s", grace="1s")

    @app.job
    async def look(ctx: Context) -> Any:
        async with ctx.transaction() as tx:
            (row,) = await tx.fetch("SHOW search_path")
        return row["search_path"]

    async with app.worker():
        assert await (await look.aenqueue()).aresult(timeout=LIMIT) == '"$user", public'
    await app.aclose()

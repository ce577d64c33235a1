"""ctx.transaction(): what a handler writes and the finish of its job commit together, or not at all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import pytest_asyncio

from windlass.errors import StoreError
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb

from .rig import new_job

if TYPE_CHECKING:
    from .rig import Rig

LIMIT = 10.0  # seconds

pytestmark = pytest.mark.usefixtures("effects")


@pytest_asyncio.fixture(loop_scope="session")
async def effects(rig: Rig) -> None:
    """A table of the program's own, without a unique constraint, so that a duplicate would be seen."""
    await rig.run("CREATE TABLE effects (word text)")


async def test_effect_and_finish_commit_together(rig: Rig) -> None:
    job = await rig.held()

    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.execute("INSERT INTO effects VALUES ($1)", "done")
        assert await transaction.finish(Transition(lease=job.lease, verb=Verb.SUCCEED, output="1"))
        await transaction.commit()

    assert await words(rig) == ["done"]
    assert await rig.status(job.id) is State.SUCCEEDED
    assert await rig.store.finished_by(job.lease)


async def test_what_was_not_committed_never_happened(rig: Rig) -> None:
    job = await rig.held()

    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.execute("INSERT INTO effects VALUES ($1)", "half")
        await transaction.finish(Transition(lease=job.lease, verb=Verb.SUCCEED))

    assert await words(rig) == []
    assert await rig.status(job.id) is State.RUNNING


async def test_an_error_in_the_block_undoes_it(rig: Rig) -> None:
    async def fail() -> None:
        async with rig.store.transaction(limit=LIMIT) as transaction:
            await transaction.execute("INSERT INTO effects VALUES ($1)", "half")
            raise LookupError

    with pytest.raises(LookupError):
        await fail()

    assert await words(rig) == []


async def test_a_cancelled_block_undoes_it_and_lets_the_next_one_in(rig: Rig) -> None:
    written = asyncio.Event()

    async def hang() -> None:
        async with rig.store.transaction(limit=LIMIT) as transaction:
            await transaction.execute("INSERT INTO effects VALUES ($1)", "half")
            written.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await written.wait()
    task.cancel()
    await asyncio.wait([task])

    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.execute("INSERT INTO effects VALUES ($1)", "next")
        await transaction.commit()
    assert await words(rig) == ["next"]


async def test_a_rollback_undoes_it_at_once(rig: Rig) -> None:
    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.execute("INSERT INTO effects VALUES ($1)", "half")
        await transaction.rollback()

        assert await words(rig) == []


async def test_savepoints_nest(rig: Rig) -> None:
    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.execute("INSERT INTO effects VALUES ($1)", "outer")
        await transaction.savepoint()
        await transaction.execute("INSERT INTO effects VALUES ($1)", "kept")
        await transaction.savepoint()
        await transaction.execute("INSERT INTO effects VALUES ($1)", "undone")
        await transaction.rollback_to()
        await transaction.release()
        await transaction.savepoint()
        await transaction.execute("INSERT INTO effects VALUES ($1)", "undone too")
        await transaction.rollback_to()
        await transaction.commit()

    assert await words(rig) == ["kept", "outer"]


async def test_a_transaction_reads_what_it_wrote(rig: Rig) -> None:
    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.execute("INSERT INTO effects VALUES ($1)", "it's $1")

        rows = await transaction.fetch("SELECT word, '$2' AS literal FROM effects WHERE word = $1", "it's $1")

    assert rows == [{"word": "it's $1", "literal": "$2"}]


async def test_parameters_are_found_by_number_and_not_by_place(rig: Rig) -> None:
    async with rig.store.transaction(limit=LIMIT) as transaction:
        rows = await transaction.fetch(
            "SELECT CAST($2 AS text) AS second, CAST($1 AS text) AS first, /* $3 */ CAST($2 AS text) AS again -- $4",
            "one",
            "two",
        )

    assert rows == [{"second": "two", "first": "one", "again": "two"}]


async def test_jobs_enqueued_inside_appear_with_the_commit(rig: Rig) -> None:
    child = new_job(delay=5.0)

    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.enqueue([child])
        assert await rig.store.find(child.id) is None
        await transaction.commit()

    assert await rig.status(child.id) is State.QUEUED


async def test_jobs_enqueued_inside_vanish_with_the_rollback(rig: Rig) -> None:
    child = new_job()

    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.enqueue([child])

    assert await rig.store.find(child.id) is None


@pytest.mark.parametrize("verb", [Verb.FAIL, Verb.SNOOZE, Verb.BURY])
async def test_other_ends_can_be_written_in_it_too(rig: Rig, verb: Verb) -> None:
    job = await rig.held()

    async with rig.store.transaction(limit=LIMIT) as transaction:
        assert await transaction.finish(Transition(lease=job.lease, verb=verb))
        await transaction.commit()

    assert (await rig.find(job.id)).token is None


async def test_a_commit_after_the_limit_is_refused(rig: Rig) -> None:
    job = await rig.held()

    async with rig.store.transaction(limit=LIMIT) as transaction:
        await transaction.execute("INSERT INTO effects VALUES ($1)", "late")
        await transaction.finish(Transition(lease=job.lease, verb=Verb.SUCCEED))
        await rig.advance(LIMIT + 1)
        with pytest.raises(StoreError, match="10 s"):
            await transaction.commit()

    assert await words(rig) == []
    assert await rig.status(job.id) is State.RUNNING


async def test_transactions_at_once_take_turns(rig: Rig) -> None:
    async def write(word: str) -> None:
        async with rig.store.transaction(limit=LIMIT) as transaction:
            await transaction.execute("INSERT INTO effects VALUES ($1)", word)
            await transaction.commit()

    await asyncio.gather(*[write(str(number)) for number in range(10)])

    assert await words(rig) == [str(number) for number in range(10)]


async def test_a_store_goes_on_after_a_refused_statement(rig: Rig) -> None:
    async with rig.store.transaction(limit=LIMIT) as transaction:
        with pytest.raises(Exception, match="nowhere"):
            await transaction.execute("INSERT INTO nowhere VALUES ($1)", str(uuid4()))

    assert await rig.status(await rig.enqueue()) is State.QUEUED


async def words(rig: Rig) -> list[Any]:
    return [row[0] for row in await rig.run("SELECT word FROM effects ORDER BY word")]

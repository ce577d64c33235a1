"""How a child gets at its handler: by the program, by the module, or not at all, and then it says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.config import Settings
from windlass.declare.registry import Isolation
from windlass.model.outcome import Ending
from windlass.runtime.processes.process_pool import ProcessPool

from .children_rig import StandIn, run, value
from .programs import handlers, moody


@pytest.fixture
async def children() -> AsyncIterator[ProcessPool]:
    children = ProcessPool(Settings(), program=None)
    yield children
    await asyncio.wait_for(children.close(), 20)


async def test_a_program_that_cannot_be_imported_fails_the_attempt(
    children: ProcessPool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MOOD", "raise")

    outcome = await run(children, moody.works)

    assert (outcome.ending, outcome.type, outcome.message) == (Ending.RAISED, "LookupError", "not today")
    assert "cannot be imported in a child process: LookupError: not today" in caplog.text
    monkeypatch.delenv("MOOD")
    assert value(await run(children, moody.works)) == "worked"


async def test_a_program_that_dies_while_it_is_imported_fails_the_attempt(
    children: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOOD", "die")

    outcome = await run(children, moody.works)

    assert (outcome.ending, outcome.type) == (Ending.RAISED, "ProgramError")
    assert outcome.message == "the process that imports the program died: exit code 7"


async def test_a_second_module_is_imported_by_the_child(children: ProcessPool) -> None:
    value(await run(children, handlers.where))

    assert value(await run(children, moody.works)) == "worked"


async def test_a_program_is_loaded_as_the_worker_was_told(tmp_path: Path) -> None:
    program = tmp_path / "my-app.py"
    program.write_text(
        "from windlass import Windlass\napp = Windlass()\n"
        "@app.job(isolation='process')\ndef twice(n: int) -> int:\n    return 2 * n\n"
    )
    here = Windlass()

    @here.job(isolation="process")
    def twice(n: int) -> int:
        raise NotImplementedError

    children = ProcessPool(Settings(), program=str(program))
    try:
        assert value(await run(children, twice, 21)) == 42
    finally:
        await children.close()


async def test_a_handler_nobody_can_import_says_what_to_do(children: ProcessPool) -> None:
    here = Windlass()

    @here.job(isolation="process")
    def local() -> None: ...

    outcome = await run(children, local)

    assert outcome.ending is Ending.RAISED
    assert "windlass worker app.py" in (outcome.message or "")


async def test_a_suspect_is_sent_to_a_process_where_that_is_possible(children: ProcessPool) -> None:
    here = Windlass()

    @here.job
    async def local() -> None: ...

    innocent, suspect = StandIn(handlers.gentle).job, StandIn(handlers.gentle, crashes=1).job

    assert children.isolation(innocent, handlers.gentle._definition) is Isolation.COROUTINE
    assert children.isolation(suspect, handlers.gentle._definition) is Isolation.PROCESS
    assert children.isolation(suspect, local._definition) is Isolation.COROUTINE
    assert ProcessPool(Settings(), program="app.py").isolation(suspect, local._definition) is Isolation.PROCESS

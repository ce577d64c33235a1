"""Results: one that is not stored as it is, one that does not fit its hint, and one that no worker will bring."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import pytest

from windlass import Context, Windlass
from windlass.errors import ResultTimeout
from windlass.handles import job as handles
from windlass.model.state import State

from .programs import admitted
from .rig import PATIENCE, attempts, come, eventually, in_state, working

INSERT = "INSERT INTO effects (n) VALUES ($1)"


async def test_a_result_that_is_not_stored_as_it_is_has_a_warning_in_the_log_and_with_the_job(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    """Given results that JSON cannot hold or that do not fit, when they are stored, then the path says where."""

    @app.job
    def opens(n: int) -> dict[str, Any]:
        return {"kept": n, "no json": [socket]}

    @app.job
    async def misfits(ctx: Context) -> list[int]:
        ctx.log("begins")
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, 1)
        return [1, "two"]  # type: ignore[list-item]

    @app.job
    def fits(n: int) -> list[int]:
        return [n]

    async with working(app):
        first, second, third = await opens.aenqueue(1), await misfits.aenqueue(), await fits.aenqueue(1)
        records = [await in_state(job, State.SUCCEEDED) for job in (first, second, third)]

    problem = "$['no json'][0] is a module, which JSON cannot hold: only its repr() is stored"
    misfit = "$[1] does not fit the return hint: Expected `int`, got `str`"
    assert [[attempt.log for attempt in attempts(record)] for record in records] == [
        [[f"WARNING the result: {problem}"]],
        [["INFO begins", f"WARNING the result: {misfit}"]],
        [],  # a success without a problem has no record of its attempt
    ]
    assert sorted(line.getMessage() for line in caplog.records if line.levelno == logging.WARNING) == [
        f"the result of misfits: {misfit} job={second.id}",
        f"the result of opens: {problem} job={first.id}",
    ]


async def test_a_result_that_does_not_fit_is_reported_by_a_child_too(
    program: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    async with working(program):
        job = await admitted.misfits_in_process.aenqueue()
        record = await in_state(job, State.SUCCEEDED)
        expected = (
            f"the result of misfits_in_process: $ does not fit the return hint: Expected `int`, got `str` job={job.id}"
        )
        await eventually(lambda: asyncio.sleep(0, caplog.messages), lambda lines: expected in lines)

    assert attempts(record)[0].log == ["WARNING the result: $ does not fit the return hint: Expected `int`, got `str`"]


async def test_a_timeout_says_that_no_worker_serves_the_job(app: Windlass) -> None:
    """Given no worker, or one of another queue, when a wait times out, then the error says what to start."""

    @app.job(queue="mail")
    async def send() -> None: ...

    job = await send.aenqueue()
    missing = (
        f"job {job.id} has not ended within 0 s: no live worker serves queue mail; "
        "try: windlass worker app.py --queue mail"
    )

    with pytest.raises(ResultTimeout) as alone:
        await job.aresult(timeout=0)
    async with working(app, queues=["default"]):
        with pytest.raises(ResultTimeout) as beside_another:
            await job.aresult(timeout=0)

    assert (str(alone.value), str(beside_another.value)) == (missing, missing)


async def test_a_timeout_beside_a_worker_that_serves_the_job_says_that_the_job_goes_on(app: Windlass) -> None:
    go, started = asyncio.Event(), asyncio.Event()

    @app.job
    async def hold() -> None:
        started.set()
        await go.wait()

    async with working(app):
        job = await hold.aenqueue()
        await come(started)
        with pytest.raises(ResultTimeout, match=r"within 0 s and goes on; wait again, or check: job\.status\(\)"):
            await job.aresult(timeout=0)
        go.set()
        await job.aresult(timeout=PATIENCE)


async def test_a_wait_without_a_worker_warns_once_and_goes_on_until_one_comes(
    app: Windlass, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Given two waits without a worker, when they lose patience, then one line is logged; a worker serves both."""
    monkeypatch.setattr(handles, "PATIENCE", 0.05)

    @app.job
    async def add(a: int, b: int) -> int:
        return a + b

    jobs = [await add.aenqueue(1, 2), await add.aenqueue(2, 3)]
    waits = [asyncio.ensure_future(job.aresult(timeout=PATIENCE)) for job in jobs]
    await eventually(
        lambda: asyncio.sleep(0, caplog.messages), lambda lines: any("waited for" in line for line in lines)
    )
    async with working(app):
        assert await asyncio.gather(*waits) == [3, 5]

    lines = [line for line in caplog.messages if "waited for" in line]
    ending = "is waited for: no live worker serves queue default; try: windlass worker app.py --queue default"
    assert len(lines) == 1
    assert ending in lines[0]

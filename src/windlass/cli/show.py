"""What `windlass demo` shows: enqueues, a kill, a rescue, and a summary computed from the store."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from windlass.cli import demo_program as program
from windlass.cli.lines import coloured, short
from windlass.cli.supervisor import Supervisor
from windlass.errors import StoreError
from windlass.state import FINAL, State

if TYPE_CHECKING:
    from windlass.handle import JobHandle
    from windlass.job import Job

PROCESSES = 2
LOOK = 0.25  # seconds between two looks at the store
STATUS = 1.0  # seconds between two status lines
LIMIT = 30.0  # seconds after which `--once` gives up
VOYAGE = 2.5  # seconds, of a job that is sure to be under way at the kill
KILL_EVERY = 15.0  # seconds, without --once
MORE_EVERY = 2.0  # seconds, without --once

HAULS, URGENT, FLAKY = 24, 4, 3
SHOWN = (State.QUEUED, State.RUNNING, State.FAILED, State.SUCCEEDED, State.DEAD)


class Show:
    """One run of the demo."""

    def __init__(self, *, once: bool) -> None:
        self._once = once
        self._app = program.app
        self._supervisor = Supervisor(_worker_arguments, processes=PROCESSES)
        self._handles: list[JobHandle[Any]] = []
        self._victims: list[JobHandle[Any]] = []  # jobs whose worker was killed
        self._colour = coloured(sys.stdout)

    async def run(self) -> bool:
        """Whether the store in the end says what it should."""
        await self._app.amigrate()
        await self._enqueue_first()
        supervising = asyncio.ensure_future(self._supervisor.run())
        directing = asyncio.ensure_future(self._direct())
        await asyncio.wait({supervising, directing}, return_when=asyncio.FIRST_COMPLETED)
        interrupted = not directing.done()
        directing.cancel()
        if not interrupted:
            self._supervisor.stop(signal.SIGTERM)
        await supervising
        try:
            if not interrupted:
                await directing
            return await self._sum_up(interrupted)
        finally:
            await self._app.aclose()

    # The play

    async def _enqueue_first(self) -> None:
        self._say(f"{HAULS} hauls, then {URGENT} urgent jobs that will overtake them, and some trouble")
        calls: list[Any] = [program.haul.call(load) for load in range(HAULS)]
        calls += [program.flaky.call(number) for number in range(FLAKY)]
        calls += [program.hopeless.call(), program.refused.call()]
        calls += [program.urgent.call(f"urgent {number}") for number in range(URGENT)]
        calls += [program.voyage.call(VOYAGE) for _ in range(PROCESSES)]
        self._handles += await self._app.aenqueue_many(calls)

    async def _direct(self) -> None:
        """Kill a worker that is at sea, watch, and say how things stand."""
        began = told = more = time.monotonic()
        killed: float | None = None
        while True:
            await asyncio.sleep(LOOK)
            now = time.monotonic()
            if (killed is None or (not self._once and now - killed > KILL_EVERY)) and await self._kill():
                killed = now
            if now - told >= STATUS:
                told = now
                await self._status()
            if self._once and (now - began > LIMIT or (killed is not None and await self._all_ended())):
                return
            if not self._once and now - more >= MORE_EVERY:
                more = now
                await self._enqueue_more()

    async def _enqueue_more(self) -> None:
        calls: list[Any] = [program.haul.call(load) for load in range(8)]
        calls += [program.flaky.call(len(self._handles)), program.urgent.call("urgent"), program.voyage.call(VOYAGE)]
        self._handles += await self._app.aenqueue_many(calls)

    async def _kill(self) -> bool:
        """kill -9 for a worker that holds a voyage; False while there is none."""
        records = [(handle, await handle.arecord()) for handle in self._handles[-PROCESSES - 16 :]]
        at_sea = {job.worker: handle for handle, job in records if job.type == "voyage" and job.worker is not None}
        pids = {child.pid for child in self._supervisor.children.values()}
        for row in await self._app.aworkers():
            pid = int(row.name.rpartition(":")[2])
            if row.id in at_sea and not row.dead and pid in pids:
                victim = at_sea[row.id]
                self._say(f"kill -9 {pid}: its voyage {short(victim.id)} will be rescued when its lease is over", "red")
                os.kill(pid, signal.SIGKILL)
                self._victims.append(victim)
                return True
        return False

    async def _all_ended(self) -> bool:
        counts = await self._app.acounts()
        return sum(counts.get(state, 0) for state in FINAL) == len(self._handles)

    async def _status(self) -> None:
        counts = await self._app.acounts()
        alive = sum(not row.dead for row in await self._app.aworkers())
        told = " · ".join(f"{counts.get(state, 0)} {state}" for state in SHOWN)
        self._say(f"{told} · {alive} workers", "cyan")

    # The end

    async def _sum_up(self, interrupted: bool) -> bool:
        """Count what the store holds against what was enqueued. Only the store is believed."""
        records = [await self._record(handle) for handle in self._handles]
        lost = sum(record is None for record in records)
        jobs = [record for record in records if record is not None]
        ended = sum(job.status in FINAL for job in jobs)
        rescued = [job for job in jobs if job.crashes > 0]
        checks = {f"{len(self._handles)} jobs enqueued, {lost} lost": lost == 0}
        if not interrupted:
            checks |= _checks(jobs, [victim.id for victim in self._victims])
        self._say("what the store says:")
        for text, holds in checks.items():
            self._say(f"  {'ok    ' if holds else 'FAILED'}  {text}", "green" if holds else "red")
        if interrupted:
            self._say(f"  {ended} ended, {len(jobs) - ended} were still on their way, {len(rescued)} rescued")
        return all(checks.values())

    async def _record(self, handle: JobHandle[Any]) -> Job | None:
        try:
            return await handle.arecord()
        except (StoreError, LookupError):
            return None

    def _say(self, text: str, colour: str | None = None) -> None:
        line = f"── {text}"
        click.echo(click.style(line, fg=colour) if self._colour and colour else line)


def _checks(jobs: list[Job], victims: list[Any]) -> dict[str, bool]:
    """What must be true at the end of `--once`, each with the sentence that says it."""
    by = {type: [job for job in jobs if job.type == type] for type in program.app.registry.types}
    succeeded = sum(job.status is State.SUCCEEDED for job in jobs)
    expected = HAULS + URGENT + FLAKY + PROCESSES
    first_urgent = max(_started(job) for job in by["urgent"])
    last_haul = max(_started(job) for job in by["haul"])
    rescued = [job for job in jobs if job.id in victims]
    return {
        f"{succeeded} of {expected} succeeded that should": succeeded == expected,
        "urgent jobs started before the last haul": first_urgent <= last_haul,
        f"flaky jobs succeeded at attempt {program.FLAKY_ATTEMPTS}": all(
            job.status is State.SUCCEEDED and job.attempt == program.FLAKY_ATTEMPTS for job in by["flaky"]
        ),
        f"the hopeless job is dead after {program.HOPELESS_ATTEMPTS} attempts": all(
            job.status is State.DEAD and job.attempt == program.HOPELESS_ATTEMPTS for job in by["hopeless"]
        ),
        "the refused job is dead after one": all(
            job.status is State.DEAD and job.attempt == 1 for job in by["refused"]
        ),
        "the killed worker's voyage was rescued and arrived": bool(rescued)
        and all(job.status is State.SUCCEEDED and job.crashes == 1 for job in rescued),
    }


def _started(job: Job) -> float:
    return 0.0 if job.started_at is None else job.started_at.timestamp()


def _worker_arguments(number: int) -> list[str]:
    reference = "windlass.cli.demo_program:app"
    return ["worker", reference, "--lines", "--log-level", "WARNING", "--number", str(number)]

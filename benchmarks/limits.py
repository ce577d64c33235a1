"""What limits cost: jobs that count against a thousand keys, compared with the same jobs without limits.

    make bench-limits
    make bench-limits ARGS="--only io --processors 8 --rounds 7 --json figures.json"

The two sides take turns in one run, each in a database of its own, so that a noisy machine affects both: compare the
shares, not the absolute figures. No part fails because of a slow machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import limited_program
from bare_sql import BATCH
from database import (
    URL,
    environment_facts,
    finished_batches,
    fresh_database,
    now,
    open_connection,
    rate,
    vacuum,
    wait_until_drained,
)
from quick import show, summary
from windlass.clock import SystemClock
from windlass.model.job import NewJob, new_id
from windlass.store.postgres.store import PostgresStore
from windlass.store.protocol import Claim, NewWorker
from worker_process import PROCESSORS, run_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

JOBS = 20_000  # per round and side
ROUNDS = 5
WAITING = (4, 8, 20, PROCESSORS)  # processors, for jobs that wait: a few, the usual number, and many
LIMIT = 120.0  # seconds until all handlers of a round must have run
LIMITED_JOBS = 10_000  # limited jobs in the database, while a queue without limits is measured
OTHER_QUEUE = "other"  # the queue of these limited jobs
LEASE = 3600.0  # seconds: the worker that holds their slots outlives the measurement

Figures = dict[str, Any]


def job(type: str, number: int, *, queue: str = "default", key: int | None = None) -> NewJob:
    if key is None:
        return NewJob(id=new_id(), type=type, input=f'{{"number":{number}}}', queue=queue)
    text = f'{{"number":{number},"key":{key}}}'
    return NewJob(id=new_id(), type=type, input=text, queue=queue, limits=(f"key:{key}",))


class Side:
    """One of two compared sides: a database, and the rates of the jobs in it."""

    def __init__(
        self, url: str, connection: Any, store: PostgresStore, *, processors: int = PROCESSORS, queue: str | None = None
    ) -> None:
        self.rates: list[float] = []
        self._url, self._connection, self._store, self._queue = url, connection, store, queue
        self._processors = processors

    async def round(self, jobs: list[NewJob]) -> None:
        """Run a worker on a full queue, and record jobs per second from the first claim to the last finish."""
        await vacuum(self._connection)
        for start in range(0, len(jobs), BATCH):
            await self._store.enqueue(jobs[start : start + BATCH])
        since = await now(self._connection)
        working = run_worker(
            self._url, expected=len(jobs), program="limited_program", processors=self._processors, queue=self._queue
        )
        async with working as worker:
            await worker.wait_for("done", limit=LIMIT)
            await wait_until_drained(self._connection, "default")
        self.rates.append(rate(await finished_batches(self._connection, since)))

    async def add_limited_jobs(self) -> None:
        """Add limited jobs to another queue. Every slot is taken, so a claim there finds only jobs that must wait."""
        await self._store.declare([limited_program.limited._definition.limits[0].rule])
        worker = NewWorker(
            id=uuid4(),
            name="other",
            lease=LEASE,
            queues=(OTHER_QUEUE,),
            types=("limited",),
            concurrency=LIMITED_JOBS,
        )
        await self._store.register(worker)
        claim = Claim(worker=worker.id, room=500, types=("limited",), queues=(OTHER_QUEUE,), rescan=True)
        for start in range(0, LIMITED_JOBS, BATCH):
            await self._store.enqueue(
                [
                    job("limited", n, queue=OTHER_QUEUE, key=n % limited_program.KEYS)
                    for n in range(start, start + BATCH)
                ]
            )
        while (await self._store.claim(claim)).jobs:
            pass


async def compare(
    jobs: int, rounds: int, *, order: str, types: tuple[str, str], processors: int = PROCESSORS
) -> Figures:
    """Measure the same jobs without and with limits, in turns."""
    plain, counted = types
    async with AsyncExitStack() as stack:
        sides = [await _side(stack, processors=processors), await _side(stack, processors=processors)]

        async def run(which: int) -> None:
            if which == 0:
                await sides[0].round([job(plain, n) for n in range(jobs)])
            else:
                await sides[1].round([job(counted, n, key=key) for n, key in enumerate(_keys(jobs, order))])

        await _in_turns(rounds, run)
    return _figures(("plain", "limited"), sides)


async def beside(jobs: int, rounds: int, *, queue: str | None) -> Figures:
    """Measure a queue without limits, in a database without limited jobs and in one that is full of them, in turns."""
    async with AsyncExitStack() as stack:
        sides = [await _side(stack, queue=queue), await _side(stack, queue=queue)]
        await sides[1].add_limited_jobs()
        await _in_turns(rounds, lambda which: sides[which].round([job("plain", n) for n in range(jobs)]))
    return _figures(("alone", "beside limited jobs"), sides)


async def _side(stack: AsyncExitStack, *, processors: int = PROCESSORS, queue: str | None = None) -> Side:
    url = await stack.enter_async_context(fresh_database())
    connection = await stack.enter_async_context(open_connection(url))
    store = PostgresStore(url, clock=SystemClock())
    await store.open()
    stack.push_async_callback(store.close)
    return Side(url, connection, store, processors=processors, queue=queue)


async def _in_turns(rounds: int, run: Callable[[int], Any]) -> None:
    """Run both sides in each round. In every second round the second side comes first."""
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            await run(which)


def _keys(jobs: int, order: str) -> list[int]:
    keys = [n % limited_program.KEYS for n in range(jobs)]
    if order == "random":
        random.Random(1).shuffle(keys)
    return keys


def _figures(names: tuple[str, str], sides: list[Side]) -> Figures:
    shares = [100 * own / other for other, own in zip(sides[0].rates, sides[1].rates, strict=True)]
    figures: Figures = {f"{name}, jobs/s": summary(side.rates) for name, side in zip(names, sides, strict=True)}
    return {**figures, f"share of {names[0]}, %": summary(shares), "rounds": len(shares)}


PARTS: dict[str, str] = {
    "noop": "jobs that do nothing: 1,000 keys limited to 2, and no limits",
    "io": "the same with 1 ms of waiting in each job, by the number of processors",
    "beside": "a queue without limits, with a worker of its own, with and without limited jobs in the database",
    "together": "the same with a worker that also serves the queue of the limited jobs",
}


async def part(name: str, arguments: argparse.Namespace) -> Iterable[tuple[str, Figures]]:
    jobs, rounds, order = arguments.jobs, arguments.rounds, arguments.keys
    if name == "noop":
        return [(name, await compare(jobs, rounds, order=order, types=("plain", "limited")))]
    if name == "io":
        types = ("plain_io", "limited_io")
        return [
            (f"io, {count} processors", await compare(jobs, rounds, order=order, types=types, processors=count))
            for count in arguments.processors or WAITING
        ]
    return [(name, await beside(jobs, rounds, queue="default" if name == "beside" else None))]


async def measure(arguments: argparse.Namespace) -> Figures:
    report: Figures = {"facts": await environment_facts(), "jobs": arguments.jobs, "keys": arguments.keys}
    print("  ".join(f"{name} {value}" for name, value in report["facts"].items()))
    for name in arguments.only or list(PARTS):
        print(f"\n{PARTS[name]}", end="")
        for title, figures in await part(name, arguments):
            report[title] = figures
            show(title, figures)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure the rate of jobs with limits as a share of the same jobs without limits."
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="measure only this part; can be repeated")
    parser.add_argument(
        "--processors",
        action="append",
        type=int,
        metavar="N",
        help="in the part `io`, measure only N processors; can be repeated",
    )
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N", help=f"jobs per round (default {JOBS:,})")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, metavar="N", help=f"rounds of each part (default {ROUNDS})"
    )
    parser.add_argument("--keys", choices=["in turn", "random"], default="random", help="the order of the jobs' keys")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures into this file")
    arguments = parser.parse_args()
    if arguments.jobs < BATCH * 5:
        parser.error(f"--jobs must be at least {BATCH * 5:,}: a rate needs more than a few batches")
    if URL not in os.environ:
        sys.exit(f"{URL} is not set: these figures need a PostgreSQL; run: make bench-limits")
    report = asyncio.run(measure(arguments))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

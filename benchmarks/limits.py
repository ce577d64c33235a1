"""What limits cost: jobs that count against a thousand keys, beside the same jobs without any.

    make bench-limits
    make bench-limits ARGS="--only io --processors 8 --rounds 7 --json figures.json"

The two sides take turns in one run, each in a database of its own, so that a noisy machine disturbs both alike: read
the shares, not the absolute figures. Nothing here fails because of a slow machine.
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

import limited
from bare import BATCH
from database import URL, connected, drained, facts, finished, fresh_database, now, rate, tidy
from hand import PROCESSORS, hand
from quick import show, summary
from windlass.clock import SystemClock
from windlass.model.job import NewJob, new_id
from windlass.store.postgres.store import PostgresStore
from windlass.store.protocol import Claim, NewWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

JOBS = 20_000  # per round and side
ROUNDS = 5
WAITING = (4, 8, 20, PROCESSORS)  # processors, where jobs wait for something: a few, the usual number, and many
LIMIT = 120.0  # seconds until all handlers of a round must have run
CROWD = 10_000  # limited jobs in the database beside which a queue without limits is measured
ASIDE = "aside"  # their queue
HELD = 3600.0  # seconds: the worker that holds their slots outlives the measurement

Figures = dict[str, Any]


def job(type: str, number: int, *, queue: str = "default", key: int | None = None) -> NewJob:
    if key is None:
        return NewJob(id=new_id(), type=type, input=f'{{"number":{number}}}', queue=queue)
    text = f'{{"number":{number},"key":{key}}}'
    return NewJob(id=new_id(), type=type, input=text, queue=queue, limits=(f"key:{key}",))


class Side:
    """One of the two that are compared: a database, and the jobs that go through it."""

    def __init__(
        self, url: str, looking: Any, store: PostgresStore, *, processors: int = PROCESSORS, queue: str | None = None
    ) -> None:
        self.rates: list[float] = []
        self._url, self._looking, self._store, self._queue = url, looking, store, queue
        self._processors = processors

    async def round(self, jobs: list[NewJob]) -> None:
        """A worker on a full queue: how many jobs per second, from the first claim to the last finish."""
        await tidy(self._looking)
        for start in range(0, len(jobs), BATCH):
            await self._store.enqueue(jobs[start : start + BATCH])
        since = await now(self._looking)
        working = hand(self._url, tell=len(jobs), program="limited", processors=self._processors, queue=self._queue)
        async with working as worker:
            await worker.says("done", limit=LIMIT)
            await drained(self._looking, "default")
        self.rates.append(rate(await finished(self._looking, since)))

    async def crowd(self) -> None:
        """Limited jobs in a queue aside: every slot is held, and whoever looks there finds the rest waiting."""
        await self._store.declare([limited.limited.definition.limits[0].rule])
        worker = NewWorker(id=uuid4(), name="aside", lease=HELD, queues=(ASIDE,), types=("limited",), concurrency=CROWD)
        await self._store.register(worker)
        wish = Claim(worker=worker.id, room=500, types=("limited",), queues=(ASIDE,), rescan=True)
        for start in range(0, CROWD, BATCH):
            await self._store.enqueue(
                [job("limited", n, queue=ASIDE, key=n % limited.KEYS) for n in range(start, start + BATCH)]
            )
        while (await self._store.claim(wish)).jobs:
            pass


async def compare(
    jobs: int, rounds: int, *, order: str, types: tuple[str, str], processors: int = PROCESSORS
) -> Figures:
    """The same jobs without and with limits, in turns."""
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
    """A queue without limits, in a database without any and in one that is full of limited jobs, in turns."""
    async with AsyncExitStack() as stack:
        sides = [await _side(stack, queue=queue), await _side(stack, queue=queue)]
        await sides[1].crowd()
        await _in_turns(rounds, lambda which: sides[which].round([job("plain", n) for n in range(jobs)]))
    return _figures(("alone", "beside limited jobs"), sides)


async def _side(stack: AsyncExitStack, *, processors: int = PROCESSORS, queue: str | None = None) -> Side:
    url = await stack.enter_async_context(fresh_database())
    looking = await stack.enter_async_context(connected(url))
    store = PostgresStore(url, clock=SystemClock())
    await store.open()
    stack.push_async_callback(store.close)
    return Side(url, looking, store, processors=processors, queue=queue)


async def _in_turns(rounds: int, run: Callable[[int], Any]) -> None:
    """One after the other, the first one second in every other round."""
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            await run(which)


def _keys(jobs: int, order: str) -> list[int]:
    keys = [n % limited.KEYS for n in range(jobs)]
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
    "beside": "a queue without limits, served by itself, beside limited jobs and without any in the database",
    "together": "the same with a worker that serves the limited jobs' queue too",
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
    report: Figures = {"facts": await facts(), "jobs": arguments.jobs, "keys": arguments.keys}
    print("  ".join(f"{name} {value}" for name, value in report["facts"].items()))
    for name in arguments.only or list(PARTS):
        print(f"\n{PARTS[name]}", end="")
        for title, figures in await part(name, arguments):
            report[title] = figures
            show(title, figures)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="What limits cost, as a share of the same jobs without them.")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure only this part; may be repeated")
    parser.add_argument("--processors", action="append", type=int, metavar="N", help="only so many, in the part `io`")
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N", help=f"jobs per round (default {JOBS:,})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"rounds of each (default {ROUNDS})")
    parser.add_argument("--keys", choices=["in turn", "random"], default="random", help="how jobs meet their keys")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
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

"""The quick benchmark: the engine's rate as a share of PostgreSQL's own rate, in about two minutes.

    make bench-quick
    make bench-quick ARGS="--only pickup --json figures.json"

Bare SQL and the engine take turns in one run, so that a noisy machine affects both: compare the shares, not the
absolute figures. No part fails because of a slow machine; a part that takes too long is reported as left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import bare_sql
import engine_run
import observed
import pickup
import snapshot
from database import URL, environment_facts, finished_batches, fresh_database, now, open_connection, rate, vacuum
from program import Sender
from windlass.store.postgres.connections.pool import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

JOBS = 20_000  # per round and side
ROUNDS = 3
PICKUPS = 300
SNAPSHOT_TIMES = 3  # times JOBS run while a snapshot is held
SQLITE_SHARE = 4  # JOBS / 4 run on SQLite
PART_LIMIT = 150.0  # seconds for one part

Figures = dict[str, Any]


async def throughput(jobs: int) -> Figures:
    """Measure bare SQL and the engine in turns."""
    rounds: dict[str, list[float]] = {"bare enqueue": [], "engine enqueue": [], "bare jobs": [], "engine jobs": []}
    async with fresh_database() as url, open_connection(url) as observer:
        connection, sender = await connect(url), Sender(url)
        try:
            for _ in range(ROUNDS):
                await vacuum(observer)
                rounds["bare enqueue"].append(await bare_sql.enqueue(connection, jobs))
                since = await now(observer)
                await bare_sql.drain(connection)
                rounds["bare jobs"].append(rate(await finished_batches(observer, since)))

                await vacuum(observer)
                rounds["engine enqueue"].append(await engine_run.enqueue(sender, jobs))
                rounds["engine jobs"].append(rate(await engine_run.drain(url, observer, jobs)))
        finally:
            await sender.app.aclose()
            await connection.close()
    figures: Figures = {name: summary(values) for name, values in rounds.items()}
    for what in ("enqueue", "jobs"):
        shares = [
            100 * own / possible for own, possible in zip(rounds[f"engine {what}"], rounds[f"bare {what}"], strict=True)
        ]
        figures[f"share of {what}, %"] = summary(shares)
    return figures


async def idle_pickup(jobs: int) -> Figures:
    async with fresh_database() as url:
        latencies = await pickup.measure(url, PICKUPS)
    return {
        f"{name}, ms": {f"p{share:.0%}".rstrip("%"): pickup.percentile(values, share) for share in (0.5, 0.9, 0.99)}
        for name, values in latencies.items()
    }


async def held_snapshot(jobs: int) -> Figures:
    async with fresh_database() as url:
        return await snapshot.measure(url, SNAPSHOT_TIMES * jobs)


async def sqlite(jobs: int) -> Figures:
    return await engine_run.drain_sqlite(max(jobs // SQLITE_SHARE, bare_sql.BATCH))


async def watched(jobs: int) -> Figures:
    figures: Figures = {}
    for kind, share in observed.KINDS.items():
        measured = await observed.measure(max(jobs // share, bare_sql.BATCH), kind)
        figures |= {f"{kind}: {name}": figure for name, figure in measured.items()}
    return figures


PARTS: dict[str, Callable[[int], Awaitable[Figures]]] = {
    "throughput": throughput,
    "pickup": idle_pickup,
    "snapshot": held_snapshot,
    "sqlite": sqlite,
    "observed": watched,
}
ONLY_ASKED = {"observed": 900.0}  # parts that run only when they are named, with their limit in seconds


def summary(values: list[float]) -> dict[str, float]:
    return {"median": median(values), "least": min(values), "most": max(values)}


async def measure(parts: list[str], jobs: int) -> Figures:
    report: Figures = {"facts": await environment_facts(), "jobs": jobs}
    print("  ".join(f"{name} {value}" for name, value in report["facts"].items()))
    for part in parts:
        limit = ONLY_ASKED.get(part, PART_LIMIT)
        try:
            async with asyncio.timeout(limit):
                report[part] = await PARTS[part](jobs)
        except TimeoutError as error:
            report[part] = {"left out": str(error) or f"it took longer than {limit:.0f} s"}
        show(part, report[part])
    return report


def show(part: str, figures: Figures) -> None:
    print(f"\n{part}")
    for name, value in figures.items():
        if isinstance(value, dict):
            columns = "".join(f"{key:>10} {figure:>10,.1f}" for key, figure in value.items())
        else:
            columns = f"{value:>21,.2f}" if isinstance(value, float) else str(value)
        print(f"  {name:<34}{columns}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the engine's rate as a share of PostgreSQL's own rate.")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure only this part; can be repeated")
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N", help=f"jobs per round (default {JOBS:,})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures into this file")
    arguments = parser.parse_args()
    if arguments.jobs < bare_sql.BATCH * 10:
        parser.error(f"--jobs must be at least {bare_sql.BATCH * 10:,}: a rate needs more than a few batches")
    if URL not in os.environ:
        sys.exit(f"{URL} is not set: these figures need a PostgreSQL; run: make bench-quick")
    report = asyncio.run(measure(arguments.only or [part for part in PARTS if part not in ONLY_ASKED], arguments.jobs))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

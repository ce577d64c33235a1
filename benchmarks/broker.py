"""Windlass beside Celery on the same RabbitMQ, by turns: jobs per second from the first enqueue to the last handler.

    make bench-broker
    make bench-broker ARGS="--rounds 5 --jobs 20000"

Celery is installed into a temporary environment, which the make target removes. Each side has one worker command, a
sender process, and a handler that appends one byte to a file. `while sending`: the worker runs while jobs are sent.
`backlog`: the worker starts when all of them are sent. The machine's noise affects both sides: compare the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from database import environment_facts, fresh_database

HERE = Path(__file__).parent
AMQP = "WINDLASS_TEST_AMQP_URL"
JOBS = 10_000  # per round, side and kind
ROUNDS = 3
LIMIT = 180.0  # seconds for one measurement
LOOK = 0.005  # seconds between two looks at the file
STOP_LIMIT = 30.0  # seconds until a worker must have ended


@dataclass
class Side:
    """One of the two: how its worker and its sender are started."""

    name: str
    worker: list[str]
    sender: list[str]
    ticks: Path
    environment: dict[str, str] = field(default_factory=dict)

    def count(self) -> int:
        return self.ticks.stat().st_size if self.ticks.exists() else 0

    def wait(self, count: int) -> None:
        """Until so many handlers have run."""
        end = time.monotonic() + LIMIT
        while self.count() < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.name}: {self.count():,} of {count:,} handlers ran within {LIMIT:g} s")
            time.sleep(LOOK)

    def start(self, command: list[str], **pipes: int) -> subprocess.Popen[str]:
        environment = {**os.environ, **self.environment, "BENCH_TICKS": str(self.ticks)}
        return subprocess.Popen(command, cwd=HERE, env=environment, text=True, **pipes)  # type: ignore[call-overload, no-any-return]

    @contextmanager
    def working(self) -> Iterator[None]:
        process = self.start(self.worker, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @contextmanager
    def sending(self) -> Iterator[subprocess.Popen[str]]:
        """A sender whose connections are open; it has sent one job."""
        process = self.start(self.sender, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"the sender of {self.name} did not start; its errors are above")
            yield process
        finally:
            process.kill()
            process.wait()


def send(process: subprocess.Popen[str], jobs: int) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{jobs}\n")
    process.stdin.flush()


def while_sending(side: Side, jobs: int) -> float:
    """Jobs per second; the worker has run one job before the clock starts."""
    before = side.count()
    with side.working(), side.sending() as sender:
        side.wait(before + 1)
        began = time.perf_counter()
        send(sender, jobs)
        side.wait(before + 1 + jobs)
        return jobs / (time.perf_counter() - began)


def backlog(side: Side, jobs: int) -> float:
    """Jobs per second from the first handler to the last."""
    before = side.count()
    with side.sending() as sender:
        send(sender, jobs)
        if sender.wait(LIMIT):
            raise RuntimeError(f"the sender of {side.name} failed; its errors are above")
    with side.working():
        side.wait(before + 1)
        began, first = time.perf_counter(), side.count()
        side.wait(before + 1 + jobs)
        return (before + 1 + jobs - first) / (time.perf_counter() - began)


async def measure(celery: Path, rounds: int, jobs: int) -> None:
    print("  ".join(f"{name} {value}" for name, value in (await environment_facts()).items()))
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        async with fresh_database() as url:
            sides = _sides(url, celery, Path(folder))
            for kind, run in (("while sending", while_sending), ("backlog", backlog)):
                ratios = []
                for number in range(rounds):
                    own, other = [await asyncio.to_thread(run, side, jobs) for side in sides]
                    ratios.append(own / other)
                    print(f"{kind}, round {number + 1}: windlass {own:,.0f}/s, celery {other:,.0f}/s", flush=True)
                print(f"{kind}: windlass / celery = {median(ratios):.2f} (from {min(ratios):.2f} to {max(ratios):.2f})")


def _sides(url: str, celery: Path, folder: Path) -> tuple[Side, Side]:
    amqp = os.environ[AMQP]
    own = {"WINDLASS_URL": url, "WINDLASS_BROKER": amqp, "WINDLASS_LOG_LEVEL": "WARNING"}
    python, windlass = sys.executable, str(Path(sys.executable).with_name("windlass"))
    worker = [str(celery / "celery"), "-A", "celery_program", "worker", "--loglevel", "WARNING"]
    return (
        Side(
            "windlass",
            [windlass, "worker", "broker_program.py", "--concurrency", "200", "-l", "WARNING"],
            [python, "broker_program.py"],
            folder / "windlass",
            own,
        ),
        Side(
            "celery",
            [*worker, "--without-gossip", "--without-mingle", "--without-heartbeat"],
            [str(celery / "python"), "celery_program.py"],
            folder / "celery",
            {"BENCH_AMQP_URL": amqp},
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure Windlass beside Celery on one RabbitMQ.")
    parser.add_argument("--celery", type=Path, required=True, metavar="DIR", help="the bin of an environment with it")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N", help=f"per round and side (default {JOBS:,})")
    arguments = parser.parse_args()
    if AMQP not in os.environ:
        sys.exit(f"{AMQP} is not set: these figures need a RabbitMQ; run: make bench-broker")
    asyncio.run(measure(arguments.celery.absolute(), arguments.rounds, arguments.jobs))


if __name__ == "__main__":
    main()

"""What a test of faults needs: a database, worker processes on it, their ledger, and patience with a bound."""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec
import pytest

from windlass import State, Windlass
from windlass.model.job import Job, NewJob, new_id
from windlass.model.rows import WorkerRow
from windlass.store.protocol import Store

from .process import Process

T = TypeVar("T")

HERE = Path(__file__).parent
SCALE = float(os.environ.get("WINDLASS_TEST_SCALE", "1"))
SEED = int(os.environ.get("WINDLASS_FAULT_SEED", random.SystemRandom().randrange(1 << 32)))

PATIENCE = 180.0  # seconds until a test gives up; nothing here waits that long when it works
LOOK = 0.02  # seconds between two reads of the store

TIMES = {
    "WINDLASS_LEASE": "2s",
    "WINDLASS_BEAT": "0.4s",
    "WINDLASS_MARGIN": "0.5s",
    "WINDLASS_SWEEP": "0.4s",
    "WINDLASS_POLL": "0.25s",
    "WINDLASS_GRACE": "5s",
    "WINDLASS_CANCEL_GRACE": "0.5s",
}
LEASE = 2.0  # seconds

FINAL = {State.SUCCEEDED, State.DEAD, State.CANCELLED}


def scaled(small: int, full: int) -> int:
    """How many of a thing there are in this run: `small` at scale 1, `full` at scale 10."""
    return round(small + (full - small) * (SCALE - 1) / 9)


class Entry(NamedTuple):
    """A line of the ledger."""

    event: str
    job: UUID
    attempt: int
    fence: int
    pid: int
    at: float


class FaultLab:
    """One database and the processes that work on it."""

    def __init__(
        self,
        url: str,
        directory: Path,
        run: Callable[[str], list[Any]],
        *,
        free: Callable[[], bool] = lambda: True,
        busy: str = "",
    ) -> None:
        self.url = url
        self.free = free  # whether another process could write now
        self._busy = busy  # finds the sessions that are inside a statement or a transaction
        self.sql = run  # `{}` stands before a table's name
        self.random = random.Random(SEED)
        self.gate = directory / "gate"
        self.processes: list[Process] = []
        self._directory = directory
        self._ledger = directory / "ledger"
        self._app = Windlass(url)

    # Given

    def enqueue(
        self,
        type: str,
        count: int = 1,
        *,
        max_attempts: int = 4,
        tenant: str = "default",
        limits: tuple[str, ...] = (),
        **input: object,
    ) -> list[UUID]:
        text = msgspec.json.encode(input).decode()
        jobs = [
            NewJob(id=new_id(), type=type, input=text, max_attempts=max_attempts, tenant=tenant, limits=limits)
            for _ in range(count)
        ]
        self.ask(lambda store: store.enqueue(jobs))
        return [job.id for job in jobs]

    def ask(self, what: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Whatever a store can be asked, as an operator would."""
        return self._app._client.ask(what)

    def start(self, *arguments: str, level: str = "WARNING", **environment: str) -> Process:
        """`windlass worker program.py …`, with short times; more of the environment by keyword."""
        return self._run("worker", "program.py", "-l", level, *arguments, **environment)

    def relay(self, **environment: str) -> Process:
        """`windlass relay`."""
        return self._run("relay", "-l", "WARNING", **environment)

    def _run(self, *command: str, **environment: str) -> Process:
        process = Process(
            [sys.executable, "-m", "windlass", *command],
            cwd=HERE,
            environment={
                **{name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")},
                **TIMES,
                "WINDLASS_URL": self.url,
                "FAULT_LEDGER": str(self._ledger),
                "FAULT_GATE": str(self.gate),
                "PYTHONFAULTHANDLER": "",
                **environment,
            },
            log=self._directory / f"{command[0]}-{len(self.processes)}.log",
        )
        self.processes.append(process)
        return process

    def ready(self, *arguments: str, **options: str) -> Process:
        """A worker that the store knows."""
        process = self.start(*arguments, **options)
        self.until(lambda: self.row(process) is not None, f"worker {process.pid} is registered")
        return process

    def open_gate(self) -> None:
        self.gate.touch()

    # When

    def until(self, condition: Callable[[], bool], what: str, *, within: float = PATIENCE) -> float:
        """Until the condition holds; the answer is how many seconds it took."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > within:
                pytest.fail(f"not within {within:g} s: {what}\n{self.report()}")
            time.sleep(LOOK)
        return time.monotonic() - began

    def until_final(self, jobs: Iterable[UUID] | int, *, within: float = PATIENCE) -> float:
        """Until so many jobs are in a final state."""
        wanted = jobs if isinstance(jobs, int) else len(list(jobs))
        return self.until(lambda: self.final() >= wanted, f"{wanted} jobs are final", within=within)

    def freeze(self, process: Process) -> None:
        """Stop it, but not while it writes: it would keep the SQLite file or its locks."""

        def stands() -> bool:
            process.freeze()
            if self.free() and not (self._busy and self.sql(self._busy)):
                return True
            process.thaw()
            return False

        self.until(stands, f"worker {process.pid} is frozen while the store is free")

    def until_frozen(self, process: Process) -> None:
        """Until it stands still by itself (see `program.freeze`), with the store free for others."""

        def stands() -> bool:
            if process.frozen and self.free():
                return True
            process.thaw()
            return False

        self.until(stands, f"worker {process.pid} stands still")

    # Then

    def counts(self) -> dict[State, int]:
        """Exactly, where `app.counts()` stops at 10,000."""
        both = "SELECT status FROM {}jobs UNION ALL SELECT status FROM {}history"
        found = self.sql(f"SELECT status, count(*) FROM ({both}) AS job GROUP BY status")
        return {State(status): count for status, count in found}

    def final(self) -> int:
        return sum(count for state, count in self.counts().items() if state in FINAL)

    def find(self, job: UUID) -> Job:
        return self._app.find(job).record()

    def workers(self) -> list[WorkerRow]:
        return self._app.workers()

    def row(self, process: Process) -> WorkerRow | None:
        """The newest incarnation of this process."""
        name = f"{socket.gethostname()}:{process.pid}"
        return next((row for row in reversed(self.workers()) if row.name == name), None)

    def ledger(self) -> list[Entry]:
        if not self._ledger.exists():
            return []
        return [
            Entry(event, UUID(job), int(attempt), int(fence), int(pid), float(at))
            for event, job, attempt, fence, pid, at in map(str.split, self._ledger.read_text().splitlines())
        ]

    def begins(self, job: UUID) -> list[Entry]:
        return [entry for entry in self.ledger() if entry.event == "begin" and entry.job == job]

    def effects(self) -> Counter[UUID]:
        """How many rows each job wrote through `ctx.transaction()`."""
        return Counter(UUID(job) for job, _ in self.sql("select job, fence from effects"))

    def check_effects(self, jobs: list[UUID]) -> None:
        """What is written through `ctx.transaction()` is there exactly once, under the lease that finished the job."""
        rows = self.sql("select job, fence from effects")
        assert Counter(UUID(job) for job, _ in rows) == Counter(jobs)
        finished = {UUID(str(id)): fence for id, fence in self.sql("select id, fence from {}history")}
        assert {UUID(job): fence for job, fence in rows} == {job: finished[job] for job in jobs}

    def check_fences(self) -> None:
        """A later run of a job has a higher fence, and no two runs share one."""
        runs: defaultdict[UUID, list[int]] = defaultdict(list)
        for entry in self.ledger():
            if entry.event == "begin":
                runs[entry.job].append(entry.fence)
        wrong = {job: fences for job, fences in runs.items() if fences != sorted(set(fences))}
        assert not wrong

    def report(self) -> str:
        """The counts of the store and the output of the processes, for a test that failed."""
        lines = [f"WINDLASS_FAULT_SEED={SEED}", f"jobs: {self.counts()}"]
        for process in self.processes:
            lines += [f"--- process {process.pid}, {process.ended()}", *process.output().splitlines()[-15:]]
        return "\n".join(lines)

    # The end

    def close(self) -> None:
        """End every process, also those that processes started."""
        for process in self.processes:
            process.end()
        self._app.close()

"""A store that a test fills with jobs, and the commands that run on it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Awaitable, Callable
from fcntl import ioctl
from typing import Any, TypeVar
from uuid import UUID, uuid4

from click.testing import CliRunner, Result

from windlass.cli.main import cli
from windlass.cli.process.child import COMMAND
from windlass.clock import SystemClock
from windlass.config import Settings
from windlass.model.job import Job, NewJob, new_id
from windlass.model.outcome import Transition
from windlass.model.state import Verb
from windlass.store import make_store
from windlass.store.protocol import Claim, NewWorker, Store

T = TypeVar("T")

PATIENCE = 30.0  # seconds
LEASE = 60.0  # seconds


class CliStore:
    """Writes to the store as workers do, and runs commands on it. Each call opens its own store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.settings = Settings.load({}, url=url)

    # Given

    def enqueue(self, count: int = 1, **options: Any) -> list[UUID]:
        defaults: dict[str, Any] = {"type": "send", "input": "{}"}
        jobs = [NewJob(**{"id": new_id(), **defaults, **options}) for _ in range(count)]
        self.call(lambda store: store.enqueue(jobs))
        return [job.id for job in jobs]

    def register_worker(
        self, *, queues: tuple[str, ...] | None = None, lease: float = LEASE, name: str = "host:1"
    ) -> UUID:
        worker = NewWorker(id=uuid4(), name=name, lease=lease, queues=queues, types=("send",), concurrency=10)
        self.call(lambda store: store.register(worker))
        return worker.id

    def claim_one(self, worker: UUID) -> Job:
        """Claim the only due job for this worker."""
        claim = Claim(worker=worker, room=1, types=("send",), rescan=True)
        (job,) = self.call(lambda store: store.claim(claim)).jobs
        return job

    def claim_jobs(self, worker: UUID | None = None, room: int = 10) -> list[Job]:
        """Claim due jobs for this worker, or for a new one."""
        claim = Claim(worker=worker or self.register_worker(), room=room, types=("send",), rescan=True)
        return list(self.call(lambda store: store.claim(claim)).jobs)

    def finish_job(self, verb: Verb, worker: UUID | None = None, **options: Any) -> UUID:
        """Enqueue and claim a job, and finish its attempt with this verb."""
        (id,) = self.enqueue(**{key: options.pop(key) for key in ("queue", "type", "input") if key in options})
        job = self.claim_one(worker or self.register_worker())
        assert job.id == id
        transition = Transition(lease=job.lease, verb=verb, attempt=1, elapsed=1.5, **options)
        self.call(lambda store: store.finish([transition]))
        return id

    def fail_job(
        self, message: str = "no answer", *, type: str = "TimeoutError", verb: Verb = Verb.FAIL, **more: Any
    ) -> UUID:
        failure = {"type": type, "message": message, "attempt": 1, "attemptedAt": "2026-01-01T00:00:00Z"}
        error = json.dumps({**failure, "traceback": f"Traceback:\n  somewhere\n{type}: {message}"})
        reason = "exhausted" if verb is Verb.BURY else None
        return self.finish_job(verb, delay=600.0, error=error, reason=reason, **more)

    def call(self, question: Callable[[Store], Awaitable[T]]) -> T:
        async def open_and_ask() -> T:
            store = make_store(self.settings, SystemClock())
            await store.open()
            try:
                return await question(store)
            finally:
                await store.close()

        return asyncio.run(open_and_ask())

    def status(self, id: UUID) -> str:
        job = self.call(lambda store: store.find(id))
        return "gone" if job is None else job.status.value

    # When

    def run(self, *arguments: str, input: str | None = None, **environment: str) -> Result:
        """Run a command with its output in a pipe."""
        runner = CliRunner(env={"WINDLASS_URL": self.url, **environment})
        return runner.invoke(cli, arguments, input=input, prog_name="windlass")

    def run_json(self, *arguments: str, code: int = 0) -> Any:
        result = self.run(*arguments, "--json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    def run_in_terminal(self, *arguments: str, width: int = 100, keys: str = "", **environment: str) -> tuple[str, int]:
        """Run a command in a terminal; returns its output and exit code. `keys` are typed when the command asks."""
        master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**plain, "TERM": "xterm", "WINDLASS_URL": self.url, COMMAND: "windlass", **environment},
            start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        try:
            return _watch(master, keys), process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
            os.close(master)


def _watch(master: int, keys: str) -> str:
    """Read until the command closes the terminal; types `keys` once, when the command asks."""
    seen = b""
    while True:
        ready, _, _ = select.select([master], [], [], PATIENCE)
        assert ready, f"nothing more came after {seen!r}"
        try:
            piece = os.read(master, 65_536)
        except OSError:  # Linux returns EIO when the last process has closed it
            piece = b""
        if not piece:
            return seen.decode().replace("\r\n", "\n")
        seen += piece
        if keys and seen.endswith((b"go on: ", b"[y/N] ")):
            os.write(master, keys.encode())
            keys = ""

"""A worker process that a test kills, freezes or thaws, and never leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
END_SECONDS = 30.0  # for a process that was asked to end, or killed


class Process:
    """Started once; its output goes to a file."""

    def __init__(self, command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """As the kernel does it: without warning, and gone when this returns."""
        self._process.kill()
        self._process.wait(END_SECONDS)

    def freeze(self) -> None:
        """Stopped when this returns: a signal alone may still be pending."""
        self._process.send_signal(signal.SIGSTOP)
        while self.ended() is None and not self.frozen:
            pass

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    @property
    def frozen(self) -> bool:
        return state(self.pid) == "T"

    def ended(self) -> int | None:
        """The exit code; minus a signal's number; None while it runs."""
        return self._process.poll()

    def wait(self) -> int:
        return self._process.wait(END_SECONDS)

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def descendants(self) -> list[int]:
        """The processes that it started, and those that these started."""
        return descendants(self.pid)

    def end(self) -> None:
        """Kill it with all it started. Their ids are gathered first: orphans have no name."""
        family = [] if self.ended() is not None else self.descendants()
        if self.ended() is None:
            self._process.kill()
        self._process.wait(END_SECONDS)
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in (PROC / str(pid) / "task").glob("*"):
        with suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def state(pid: int) -> str:
    """The kernel's letter for what a process is doing; empty when it is gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""

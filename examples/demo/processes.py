"""The demo's processes: each of the four systems as its README starts it, its worker, and the dashboard."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1]
LOOPBACK = "127.0.0.1"
DASHBOARD = 8117
TRIED = 20  # ports, until one is free
LOG_LINES = 15


class Failed(Exception):
    """A process ended by itself, or answered with an error."""


class Processes:
    """`with Processes(folder, environment) as processes:` ends every process with the block, whatever happened."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self._commands: dict[str, tuple[str, list[str], Mapping[str, str]]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._held: list[socket.socket] = []

    def start(self, name: str, system: str, *command: str, **environment: str) -> None:
        """Run `python COMMAND` in the folder of a system. Its output goes to a log."""
        self._commands[name] = system, list(command), environment
        with self._log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, *command],
                cwd=EXAMPLES / system,
                env={**os.environ, **self._environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is the demo's; and one signal reaches what the process started
            )

    def kill(self, name: str) -> int:
        """kill -9; returns the process id that it had."""
        process = self._running[name]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return process.pid

    def restart(self, name: str) -> None:
        system, command, environment = self._commands[name]
        self.start(name, system, *command, **environment)

    def take_port(self, wanted: int | None = None) -> int:
        """A port for a server to come: the wanted one or one of the next, where one is wanted.

        It stays bound here, so that no other program takes it before the server does. The server may bind it all the
        same, since both allow that and this socket does not listen.
        """
        for port in [0] if wanted is None else [*range(wanted, wanted + TRIED), 0]:
            held = socket.socket()
            self._held.append(held)
            with suppress(OSError):
                held.bind((LOOPBACK, port))
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                return int(held.getsockname()[1])
        raise Failed("no port of this machine is free")

    def check(self) -> None:
        """Raise Failed for a process that ended by itself: none should."""
        for name, process in self._running.items():
            if (code := process.poll()) is not None:
                raise self.blame(name, f"it ended with {code}")

    def blame(self, name: str, why: str) -> Failed:
        """The error, with the last lines of the process's log."""
        lines = self._log(name).read_text(errors="replace").splitlines()[-LOG_LINES:]
        return Failed("\n".join([f"{name}: {why}; its last lines:", *lines]))

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._running.values():
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:  # it has ended, and all that it started has
                    continue
            for process in self._running.values():
                try:
                    process.wait(timeout=8)
                except subprocess.TimeoutExpired:
                    continue
        for held in self._held:
            held.close()

"""A child process of the command line: a fresh interpreter that runs `windlass …` and never outlives its parent.

The lifeline is a pipe, and only the parent holds its write end. When the parent process ends for any reason, kill -9
included, the child reads end-of-file from the pipe and stops as if it had received SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence

from windlass.cli.show.output import own_command

COMMAND = "_WINDLASS_COMMAND"
"""In the environment of a child: how the user started its parent, for the hints that the child prints."""


class WindlassProcess:
    """One child process: started once, waited for once."""

    def __init__(self, arguments: Sequence[str], *, foreground: bool = False, kept: Sequence[int] = ()) -> None:
        self._arguments = tuple(arguments)
        self._kept = tuple(kept)  # file descriptors of this process that a foreground child gets under the same numbers
        self._foreground = foreground  # it shares the terminal: a debugger in a handler can read from it
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline: int | None = None

    async def start(self) -> None:
        """Start the interpreter; raises OSError when the system cannot start another process."""
        read_end, self._lifeline = os.pipe()
        command = [sys.executable, "-m", "windlass", *self._arguments, "--lifeline", str(read_end)]
        environment = {**os.environ, COMMAND: own_command()}
        try:
            self._process = await (
                self._spawn_in_foreground(command, read_end, environment)
                if self._foreground
                else _spawn_in_own_group(command, read_end, environment)
            )
        except BaseException:
            self._close_lifeline()
            raise
        finally:
            os.close(read_end)

    async def wait(self) -> int:
        """The exit status; a negative one is the number of the signal that ended the process."""
        assert self._process is not None
        try:
            return await self._process.wait()
        finally:
            self._close_lifeline()

    def signal(self, number: int) -> None:
        """Send a signal, if the process still runs."""
        if self._process is not None and self._process.returncode is None:
            try:
                self._process.send_signal(number)
            except ProcessLookupError:
                pass

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def _spawn_in_foreground(
        self, command: list[str], lifeline: int, environment: dict[str, str]
    ) -> asyncio.subprocess.Process:
        """Start the child in the parent's process group, where Ctrl-C reaches both.

        The parent decides what Ctrl-C means: the child starts with SIGINT blocked, and unblocks it once it has a signal
        handler that does nothing.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return await asyncio.create_subprocess_exec(*command, pass_fds=(lifeline, *self._kept), env=environment)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _close_lifeline(self) -> None:
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None


async def _spawn_in_own_group(
    command: list[str], lifeline: int, environment: dict[str, str]
) -> asyncio.subprocess.Process:
    """Start the child in its own process group: Ctrl-C reaches the parent alone, and no process a handler started."""
    return await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, pass_fds=(lifeline,), process_group=0, env=environment
    )


def watch_lifeline(lifeline: int, on_parent_exit: Callable[[], object]) -> None:
    """In the child: call `on_parent_exit`, on a thread, when the parent has ended."""
    os.set_inheritable(lifeline, False)

    def watch() -> None:
        try:
            while os.read(lifeline, 1):
                pass
        except OSError:
            pass
        on_parent_exit()

    threading.Thread(target=watch, name="windlass-lifeline", daemon=True).start()


def leave_interrupts_to_parent() -> None:
    """In a foreground child: the parent handles Ctrl-C. Not SIG_IGN: processes that a handler starts inherit it."""
    signal.signal(signal.SIGINT, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def describe_exit(status: int) -> str:
    """An exit status as text: `exit 1`, `killed by SIGKILL`."""
    if status >= 0:
        return f"exit {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"

"""The forkserver as its worker sees it: it is started, makes children, and reports their deaths."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from typing import NamedTuple

import msgspec

from windlass.model.outcome import Ending, Outcome
from windlass.runtime.processes.channel import Channel
from windlass.runtime.processes.wire import (
    Exited,
    Fork,
    Forked,
    Kill,
    NotForked,
    Ready,
    Start,
    Unready,
    from_forkserver,
)

log = logging.getLogger("windlass")

BOOT = (
    "import sys; fd, parent = map(int, sys.argv[1:3]); sys.path[:] = sys.argv[3:]; del sys.argv[1:];"
    " from windlass.runtime.processes.forkserver import main; main(fd, parent)"
)
"""The module path comes first, so that Windlass and the program are found as the worker found them."""

CLOSE_SECONDS = 5.0  # for a forkserver to end by itself


Alive = tuple[int, asyncio.Future[int | None]]


class StartedChild(NamedTuple):
    """A child, straight from the fork."""

    pid: int
    sock: socket.socket
    gone: asyncio.Future[int | None]  # its exit code, or minus a signal; None: it died with its forkserver


class ForkserverClient:
    """One forkserver process. When it is dead it stays so; its owner makes another."""

    def __init__(self, start: Start) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # From the event loop's own thread: the kernel ends the forkserver with the thread that started it.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT, str(theirs.fileno()), str(os.getpid()), *map(str, sys.path)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._loop = asyncio.get_running_loop()
        self._control = Channel(ours, on_frame=self._receive, on_end=self._ended)
        self._control.send(start)
        self._one_request = asyncio.Lock()  # one request at a time: sockets can never pile up
        self._numbers = 0
        self._requests: dict[int, asyncio.Future[Alive | None]] = {}
        self._gone: dict[int, asyncio.Future[int | None]] = {}
        self.ready: asyncio.Future[Outcome | None] = self._loop.create_future()  # None, or why it never will be
        self.dead = False

    @property
    def pid(self) -> int:
        return self._process.pid

    async def fork(self) -> StartedChild | None:
        """A new child; None when the forkserver died instead. After a cancellation the child ends itself."""
        async with self._one_request:
            if self.dead:
                return None
            self._numbers += 1
            answer = self._requests[self._numbers] = self._loop.create_future()
            ours, theirs = socket.socketpair()
            self._control.send(Fork(self._numbers), passing=theirs)
            try:
                alive = await answer
            except BaseException:
                ours.close()
                raise
            if alive is None:
                ours.close()
                return None
            pid, gone = alive
            return StartedChild(pid, ours, gone)

    def kill(self, pid: int) -> None:
        """Through the forkserver: only the process that reaps a child knows that the number is still the child's."""
        self._control.send(Kill(pid))

    def abandon(self) -> None:
        """It does not answer any more: end it, and with it whatever it holds."""
        self._process.kill()
        self._control.drain()

    async def close(self) -> None:
        """Close the socket; the forkserver ends its children and itself."""
        if not self.ready.done():  # busy with an import, it would not notice
            self._process.kill()
        self._control.close()
        self._end_all()
        try:
            await asyncio.to_thread(self._process.wait, CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def _receive(self, piece: bytes) -> None:
        try:
            message = from_forkserver.decode(piece)
        except msgspec.DecodeError:  # the program wrote to our socket
            self.abandon()
            return
        match message:
            case Ready(threads):
                if threads:
                    log.warning("the program starts %d threads when it is imported; children do not have them", threads)
                self.ready.set_result(None)
            case Unready(kind, text, trace):
                log.error("the program cannot be imported in a child process: %s: %s", kind, text)
                self._refuse(Outcome(ending=Ending.RAISED, type=kind, message=text, traceback=trace))
            case Forked(number, pid):
                gone = self._gone[pid] = self._loop.create_future()
                self._answer(number, (pid, gone))
            case NotForked(number, why):
                log.error("no child process could be made: %s", why)
                self._answer(number, None)
            case Exited(pid, code):
                self._gone.pop(pid).set_result(code)

    def _answer(self, number: int, alive: Alive | None) -> None:
        request = self._requests.pop(number)
        if not request.done():  # else the request was cancelled
            request.set_result(alive)

    def _ended(self, problem: str | None) -> None:
        self._process.kill()
        code = self._process.wait()  # it has just been killed: this does not take time
        if not self.dead:
            log.error("the forkserver died: %s", spell_end(code))
        text = f"the process that imports the program died: {spell_end(code)}"
        self._refuse(Outcome(ending=Ending.RAISED, type="ProgramError", message=text))
        self._end_all()

    def _refuse(self, outcome: Outcome) -> None:
        self.dead = True
        if not self.ready.done():
            self.ready.set_result(outcome)

    def _end_all(self) -> None:
        self.dead = True
        for number in list(self._requests):
            self._answer(number, None)
        while self._gone:
            self._gone.popitem()[1].set_result(None)


def spell_end(code: int | None) -> str:
    """`SIGSEGV`, `exit code 3`."""
    if code is None:
        return "with its forkserver"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"

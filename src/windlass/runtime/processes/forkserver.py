"""A process that imports the program once, alone and single-threaded, and forks a child for each request of its worker.

It ends with its worker: at the end of their socket, and on Linux by a signal of the kernel too. It survives Ctrl-C and
SIGTERM: the worker gets them too, and decides.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress

from windlass.app import Windlass
from windlass.clock import SystemClock
from windlass.payload.sanitise import describe
from windlass.runtime.processes import child_main
from windlass.runtime.processes.wire import (
    Exited,
    Fork,
    Forked,
    Frames,
    Kill,
    NotForked,
    Ready,
    Start,
    Unready,
    frame,
    to_forkserver,
)
from windlass.store import make_store

PR_SET_PDEATHSIG = 1
READ_BYTES = 4096
FDS_AT_ONCE = 16
STARTED_AGAIN = ("OtelBatch", "sentry")  # threads whose library starts them again in a forked process


def main(fd: int, parent: int) -> None:
    """Serve the worker `parent` at the other end of `fd`."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _nothing)  # not SIG_IGN, which the children's own children would inherit
    try:
        Forkserver(socket.socket(fileno=fd)).run()
    except (BrokenPipeError, ConnectionResetError):  # the worker is gone: there is nothing to report any more
        pass
    os._exit(0)  # threads of the program are not waited for


class Forkserver:
    """One socket, one import, many forks."""

    def __init__(self, control: socket.socket) -> None:
        control.set_inheritable(False)
        self._control = control
        self._frames = Frames()
        self._sockets: list[socket.socket] = []  # came with Fork requests, in their order
        self._children: set[int] = set()
        self._start: Start | None = None
        self._app: Windlass | None = None
        self._selector = selectors.DefaultSelector()
        self._deaths, self._wakeup = socket.socketpair()

    def run(self) -> None:
        """Until the worker closes its end."""
        self._watch()
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._deaths:
                    self._reap()
                elif not self._listen():
                    self._kill_all()
                    return

    def _watch(self) -> None:
        for sock in (self._deaths, self._wakeup):
            sock.setblocking(False)
        signal.signal(signal.SIGCHLD, _nothing)  # without a handler the wake-up socket is not written
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._deaths, selectors.EVENT_READ)

    def _listen(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._control, READ_BYTES, FDS_AT_ONCE)
        for fd in fds:
            os.set_inheritable(fd, False)  # a program that a handler starts must not keep the socket open
            self._sockets.append(socket.socket(fileno=fd))
        if not data:
            return False
        for piece in self._frames.feed(data):
            match to_forkserver.decode(piece):
                case Start() as start:
                    if not self._import(start):
                        return False
                case Fork(number):
                    self._fork(number, self._sockets.pop(0))
                case Kill(pid):
                    if pid in self._children:  # not reaped yet, so that the number is still this child's
                        os.kill(pid, signal.SIGKILL)
        return True

    def _import(self, start: Start) -> bool:
        self._start = start
        try:
            if start.program is not None:
                from windlass.declare.program import load

                self._app = load(start.program)
            for module in start.modules:
                importlib.import_module(module)
            make_store(start.settings, SystemClock())  # opens nothing; imports the driver once for all children
        except BaseException as error:  # sys.exit() in a program is reported too
            self._send(Unready(*describe(error)))
            return False
        gc.collect()
        gc.freeze()  # the collector would touch, and so copy, every page that the children share with this process
        lasting = [each for each in threading.enumerate() if not each.name.startswith(STARTED_AGAIN)]
        self._send(Ready(len(lasting) - 1))
        return True

    def _fork(self, number: int, sock: socket.socket) -> None:
        _flush()
        here = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            sock.close()
            self._send(NotForked(number, str(error)))
            return
        if pid == 0:
            self._become_child(sock, here)
        sock.close()
        self._children.add(pid)
        self._send(Forked(number, pid))

    def _become_child(self, sock: socket.socket, parent: int) -> None:
        """In the child. Never returns."""
        try:
            die_with(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._selector.close()
            for ours in (self._control, self._deaths, self._wakeup, *self._sockets):
                ours.close()
            assert self._start is not None, "a worker sends Start before it asks for children"
            child_main.main(sock, self._start.settings, self._app)
        except BaseException:
            traceback.print_exc()
        finally:
            _flush()
            os._exit(1)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            self._deaths.recv(READ_BYTES)
        for pid in list(self._children):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._children.discard(pid)
                self._send(Exited(pid, os.waitstatus_to_exitcode(status)))

    def _kill_all(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        for pid in self._children:
            os.waitpid(pid, 0)

    def _send(self, message: Ready | Unready | Forked | NotForked | Exited) -> None:
        self._control.sendall(frame(message))


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` dies; other systems than Linux rely on the socket's end.

    The kernel watches the thread that started this process: a worker starts its forkserver on its loop's thread.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os._exit(1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or replaced by something strange
            stream.flush()


def _nothing(*_: object) -> None:
    pass

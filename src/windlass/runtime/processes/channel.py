"""The worker's end of a socket to its forkserver or to a child: callbacks on the event loop, and nothing that waits."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from windlass.runtime.processes.wire import Frames, Message, Unreadable, frame

READ_BYTES = 64 * 1024


class Channel:
    """Whole messages in and out. `on_end` is called once: with None at the end, else with what was wrong."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        on_frame: Callable[[bytes], None],
        on_end: Callable[[str | None], None],
        largest: int | None = None,
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._on_frame = on_frame
        self._on_end = on_end
        self._frames = Frames(largest)
        self._outgoing: deque[tuple[bytes, socket.socket | None]] = deque()
        self.ended = False
        self._loop.add_reader(sock, self._read)

    def send(self, message: Message, *, passing: socket.socket | None = None) -> None:
        """Send it, and with it a socket, which is closed here. After the end: nothing happens."""
        if self.ended:
            if passing is not None:
                passing.close()
            return
        self._outgoing.append((frame(message), passing))
        self._write()

    def drain(self) -> None:
        """The other side is dead: read what it left, then end, even if its own child holds the socket open."""
        while not self.ended and self._read():
            pass
        self._end(None)

    def close(self) -> None:
        """Close without a call of `on_end`."""
        if not self.ended:
            self.ended = True
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            for _, passing in self._outgoing:
                if passing is not None:
                    passing.close()
            self._outgoing.clear()

    def _read(self) -> bool:
        try:
            data = self._sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self._end(None)
            return False
        try:
            for piece in self._frames.feed(data):
                if self.ended:  # the last message led to it
                    return False
                self._on_frame(piece)
        except Unreadable as error:
            self._end(str(error))
        return not self.ended

    def _write(self) -> None:
        while self._outgoing:
            data, passing = self._outgoing[0]
            try:
                if passing is not None:
                    sent = socket.send_fds(self._sock, [data], [passing.fileno()])
                    passing.close()
                else:
                    sent = self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(self._sock, self._write)
                return
            except OSError:  # the other side is gone; the reader reports it after what is left was read
                break
            if sent < len(data):
                self._outgoing[0] = (data[sent:], None)
            else:
                self._outgoing.popleft()
        self._loop.remove_writer(self._sock)

    def _end(self, problem: str | None) -> None:
        if not self.ended:
            self.close()
            self._on_end(problem)

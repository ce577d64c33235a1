"""Messages between a worker, its forkserver and its children: JSON behind four bytes of length, never pickle.

worker → forkserver   Start, then Fork (with the new child's socket) and Kill
forkserver → worker   Ready or Unready, then Forked, NotForked, Exited
worker → child        Work, StopRequest, StackRequest
child → worker        Began, ProgressReport, LogLine, StackReport, AttemptDone
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from uuid import UUID

import msgspec

from windlass.config import Settings
from windlass.model.job import Job
from windlass.model.outcome import Outcome

LARGEST_FROM_CHILD = 256 << 20  # bytes: ten thousand spawned jobs, each with an input of some KiB, are below
HEADER = struct.Struct("!I")


class Message(msgspec.Struct, frozen=True, tag=True, tag_field="kind"):
    """One of the messages below."""


class Start(Message, frozen=True):
    """The first message to a forkserver: what to import, and the worker's settings."""

    program: str | None
    modules: list[str]  # to import where there is no program
    settings: Settings


class Ready(Message, frozen=True):
    threads: int  # that the import left running: a forked child does not have them


class Unready(Message, frozen=True):
    """The program cannot be imported."""

    type: str
    message: str
    traceback: str


class Fork(Message, frozen=True):
    """Make a child; its socket comes along as a file descriptor."""

    number: int


class Forked(Message, frozen=True):
    number: int
    pid: int


class NotForked(Message, frozen=True):
    number: int
    why: str


class Kill(Message, frozen=True):
    pid: int


class Exited(Message, frozen=True):
    """A child is dead and reaped: `code` is its exit code, or minus the signal's number."""

    pid: int
    code: int


class Work(Message, frozen=True):
    """An attempt for a child."""

    job: Job
    module: str
    qualname: str
    waited: float  # seconds from the answer to the claim until the start
    trace: str | None = None  # the traceparent under which the worker watches the attempt


class StopRequest(Message, frozen=True):
    """This job was asked to stop: `ctx.cancelled`."""

    job: UUID


class StackRequest(Message, frozen=True):
    """Report where the handler is."""


class Began(Message, frozen=True):
    """The handler is about to be called: from here on the child's death is this attempt's crash."""


class ProgressReport(Message, frozen=True):
    """`ctx.progress()` and `ctx.cost()`."""

    job: UUID
    total: int | None
    processed: int
    failed: int
    spent: int = 0  # cents


class LogLine(Message, frozen=True):
    """A line of `ctx.log`."""

    job: UUID
    level: int
    text: str


class StackReport(Message, frozen=True):
    """Where the handler is."""

    frames: str


class AttemptDone(Message, frozen=True):
    """The end of the attempt; the child is free for another."""

    outcome: Outcome


FromForkserver = Ready | Unready | Forked | NotForked | Exited
ToForkserver = Start | Fork | Kill
FromChild = Began | ProgressReport | LogLine | StackReport | AttemptDone
ToChild = Work | StopRequest | StackRequest

encoder = msgspec.json.Encoder()
from_forkserver = msgspec.json.Decoder(FromForkserver)
to_forkserver = msgspec.json.Decoder(ToForkserver)
from_child = msgspec.json.Decoder(FromChild)
to_child = msgspec.json.Decoder(ToChild)


class Unreadable(Exception):
    """The other side sent something that is no message."""


class Frames:
    """Bytes as they come in, whole messages as they go out."""

    def __init__(self, largest: int | None = None) -> None:
        self._largest = largest
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._buffer)
            if self._largest is not None and length > self._largest:
                raise Unreadable(f"a message of {length:,} bytes, where {self._largest:,} are the most")
            end = HEADER.size + length
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[HEADER.size : end])
            del self._buffer[:end]
            yield frame


def frame(message: Message) -> bytes:
    """The message as it goes over a socket."""
    body = encoder.encode(message)
    return HEADER.pack(len(body)) + body

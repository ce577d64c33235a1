"""The actor that the audit names: that of `with acting_as("ann")`, else the setting `actor`, else user@host.

The actor of a block is a context variable. A call reaches the portal's loop on another thread with a copy of the
caller's context (`blocking.Portal.submit`), so that an operation finds its caller's actor wherever it is written.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from windlass.errors import ConfigError
from windlass.names import LONGEST_NAME, name_problem

_current: ContextVar[str | None] = ContextVar("windlass_actor", default=None)


@contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """Name this actor in the audit for every change inside the block: `with acting_as("ann"): app.pause(queue="mail")`.

    It counts before the setting `actor`, for calls of apps, handles and schedules, blocking and awaited. Threads and
    tasks each have their own block; a task, and `asyncio.to_thread`, take along that of their caller. An inner block
    counts before an outer one. Raises ConfigError for a text that is no name.
    """
    problem = name_problem(actor)
    if problem is not None:
        raise ConfigError(f"actor {problem}; give a name such as 'ann@ship'")
    before = _current.set(actor)
    try:
        yield
    finally:
        _current.reset(before)


def current_actor(setting: str | None) -> str:
    """The actor of the block that this runs in, else the setting's, else the user of this process."""
    return _current.get() or setting or user_and_host()


def user_and_host() -> str:
    """`ann@ship`; the user's number where the user has no name, as in many containers."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    name = "".join(letter if letter.isprintable() else "?" for letter in f"{user}@{socket.gethostname()}")
    return name[:LONGEST_NAME]

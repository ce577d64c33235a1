"""Ctrl-C from the first moment on: the signal is kept until the loop can act on it, and prints no traceback."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """The signals that end the demo. `catch` comes first, `deliver_to` as soon as there is a loop."""

    def __init__(self) -> None:
        self._early: int | None = None

    def catch(self) -> None:
        """Only keep the signal: it must not interrupt imports or the start of the loop."""
        for number in SIGNALS:
            signal.signal(number, self._keep)

    def deliver_to(self, act: Callable[[int], None]) -> None:
        """From now on the running loop calls `act` for each signal; at once, if a signal came already."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, act, number)
        early, self._early = self._early, None
        if early is not None:
            act(early)

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self._early = number

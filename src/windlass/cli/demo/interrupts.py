"""Ctrl-C from the first moment on: remembered until somebody can act on it, and never a traceback."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """What signals ask of the demo. `catch` first, `hand_to` as soon as there is a loop."""

    def __init__(self) -> None:
        self._early: int | None = None

    def catch(self) -> None:
        """Only remember: imports and the start of a loop must not be torn in the middle."""
        for number in SIGNALS:
            signal.signal(number, self._remember)

    def hand_to(self, act: Callable[[int], None]) -> None:
        """From now on `act` is called by the running loop; at once, if a signal came already."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, act, number)
        early, self._early = self._early, None
        if early is not None:
            act(early)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._early = number

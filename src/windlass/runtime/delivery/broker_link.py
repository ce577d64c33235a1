"""The worker's connection to its broker: it is opened in the background, and watched.

A broker that is away delays nothing: until it answers, the worker polls the store at its normal pace. The transport
mends its connections itself. This service notices that it is away or back, and tells the other parts.
"""

from __future__ import annotations

import logging

from windlass.errors import BrokerError, BrokerRefused
from windlass.observe.events import BrokerBack, BrokerLost
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState
from windlass.store.contact import Outage, jittered
from windlass.transport.protocol import JobDispatcher
from windlass.transport.relay import set_delivery

log = logging.getLogger("windlass")

WATCH_EVERY = 0.5  # seconds between two looks at whether the transport is up; a look asks nothing of the broker
LONGEST_PAUSE = 10.0  # seconds between two tries to open a broker that is away
REFUSED_PAUSE = 30.0  # seconds, after the broker refused: an operator has to act first


class BrokerLink(Service):
    """Opens the dispatcher once, and sends `broker_changed` whenever deliveries begin or cease to arrive."""

    name = "broker"

    def __init__(self, state: WorkerState, dispatcher: JobDispatcher) -> None:
        super().__init__(state.clock)
        self.dispatcher = dispatcher
        self._state = state
        self._outage = Outage(f"the broker {dispatcher.shown}")
        self._is_open = False
        self._is_consuming = False
        self._mode_is_set = False
        self._failures = 0
        self._lost_at: float | None = None  # None: it carries deliveries, or never did
        self._was_up = False
        self._refusal: str | None = None
        state.signals.registered.subscribe(self.nudge)

    @property
    def is_up(self) -> bool:
        """Whether the broker answered last: what the relay asks."""
        return self._is_open and self.dispatcher.is_up

    @property
    def carries(self) -> bool:
        """Whether deliveries arrive here. While they do not, discovery polls at its normal pace."""
        return self.is_up and self._is_consuming

    @property
    def is_ready(self) -> bool:
        """Whether deliveries arrive here, and the database writes an outbox."""
        return self.carries and self._mode_is_set

    def set_consuming(self, consuming: bool) -> None:
        """The intake has an open consumer, or has none."""
        if consuming != self._is_consuming:
            self._is_consuming = consuming
            self._state.signals.broker_changed()

    def refused(self, error: BrokerError) -> None:
        """The broker answers and refuses: logged once per reason, because a retry meets the same."""
        if str(error) != self._refusal:
            self._refusal = str(error)
            log.error("the broker refuses: %s; until then this worker polls the database", error)

    async def round(self) -> float:
        pause = await self._open()
        if not self._mode_is_set and self._state.registered:
            if await set_delivery(self._state.store, self._state.settings):
                # A job that was enqueued before has no row in the outbox: one poll claims all that is due.
                self._state.signals.broker_changed()
            self._mode_is_set = True
        return pause

    async def _open(self) -> float:
        now = self.clock.monotonic()
        if not self._is_open:
            try:
                await self.dispatcher.open()
            except BrokerRefused as error:
                self.refused(error)
                return REFUSED_PAUSE
            except BrokerError as error:
                self._failures += 1
                self._outage.record(error, now)
                return jittered(self._failures, LONGEST_PAUSE)
            self._is_open, self._failures = True, 0
            log.debug("the broker %s is open", self.dispatcher.shown)
        self._watch(now)
        return WATCH_EVERY

    def _watch(self, now: float) -> None:
        is_up = self.is_up
        if not is_up:
            self._outage.record(BrokerError("its connection broke"), now)
        if is_up == self._was_up:
            return
        self._was_up = is_up
        if is_up:
            self._refusal = None
            self._outage.end(now)
            if self._lost_at is not None:
                self._state.emit(BrokerBack(self.dispatcher.shown, now - self._lost_at))
                self._lost_at = None
        else:
            self._lost_at = now
            self._state.emit(BrokerLost(self.dispatcher.shown))
        self._state.signals.broker_changed()

"""The relay as a duty of a worker. An idle relay sets the worker's idle mark, so that an enqueue wakes it.

It commits the mark, leases once more, and only then sleeps: no enqueue can fall between.
"""

from __future__ import annotations

import logging

from windlass.errors import BrokerError
from windlass.observe.events import OutboxPublished
from windlass.runtime.claims.idle_mark import IdleMark
from windlass.runtime.delivery.broker_link import BrokerLink
from windlass.runtime.discovery import AFTER_DUE
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState
from windlass.store.contact import jittered
from windlass.transport.relay import LONGEST_PAUSE, Relay

log = logging.getLogger("windlass")


class OutboxRelay(Service):
    """Publishes the outbox while the broker is up."""

    name = "relay"

    def __init__(self, state: WorkerState, link: BrokerLink, idle_mark: IdleMark) -> None:
        super().__init__(state.clock)
        self._state = state
        self._link = link
        self._idle_mark = idle_mark
        self._relay = Relay(state.store, link.dispatcher)
        self._failures = 0
        signals = state.signals
        signals.registered.subscribe(self.nudge)
        signals.jobs_may_be_due.subscribe(self.nudge)
        signals.jobs_due_in.subscribe(self.publish_in)
        signals.jobs_unparked.subscribe(lambda queues: self.nudge())
        signals.broker_changed.subscribe(self.nudge)

    def publish_in(self, seconds: float) -> None:
        """A job that ended here may be delivered again after `seconds`: publish it then, and not at the next poll."""
        if seconds < self._state.settings.poll:
            self._state.later(seconds + AFTER_DUE, self.nudge)

    async def round(self) -> float:
        state = self._state
        if not self._link.is_up or not state.registered:
            return state.settings.poll
        try:
            did = await self._relay.round()
        except BrokerError as error:
            self._failures += 1
            log.debug("relay: %s", error)
            return jittered(self._failures, LONGEST_PAUSE)
        self._failures = 0
        if did.leased:
            state.emit(OutboxPublished(did.published, did.buried, did.unconfirmed, did.dropped))
            if did.is_full:
                await self._idle_mark.clear()
            return 0  # leases once more before it is idle
        if not self._idle_mark.is_set:
            await self._idle_mark.set()
            return 0  # once more, now that enqueues can see the mark
        return state.settings.poll if did.next_due is None else min(state.settings.poll, did.next_due + AFTER_DUE)

"""The sweep of undelivered jobs: due and unclaimed for over an hour. One worker makes it, every 15 minutes.

It is not the way in which lost deliveries are repaired: that is the fallback poll. A job that it finds shows that
workers have no room for its queue, or that none serves it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from windlass.clock import spell
from windlass.errors import BrokerError
from windlass.model.delivery import UndeliveredAction
from windlass.observe.events import UndeliveredFound
from windlass.runtime.delivery.broker_link import BrokerLink
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

log = logging.getLogger("windlass")

LEADERSHIP = "undelivered"  # its name in the store
KEPT = 3_600.0  # seconds that a delivery stays in the broker at least, whatever became of its job


class UndeliveredSweep(Service):
    """One sweep per period, by the worker that holds the leadership; its lease is the period."""

    name = "undelivered"

    def __init__(self, state: WorkerState, link: BrokerLink, queues: Collection[str]) -> None:
        super().__init__(state.clock)
        self._state = state
        self._link = link
        self._queues = queues

    async def round(self) -> float:
        state, settings = self._state, self._state.settings
        if state.registered and await state.store.lead(LEADERSHIP, state.worker, settings.undelivered_every):
            action = UndeliveredAction(settings.undelivered_action)
            found = await state.store.undelivered(older=settings.undelivered, action=action)
            if found:
                what = "published again" if action is UndeliveredAction.PUBLISH else "dead now"
                log.warning("%d jobs were due and unclaimed for over %s: %s", found, spell(settings.undelivered), what)
                state.emit(UndeliveredFound(found, action))
            await self._trim()
        return settings.undelivered_every

    async def _trim(self) -> None:
        """Deliveries this old name jobs that the fallback poll has found long ago."""
        if self._link.is_up:
            try:
                trimmed = await self._link.dispatcher.trim(self._queues, max(KEPT, 2 * self._state.settings.fallback))
            except BrokerError as error:
                log.debug("old deliveries could not be trimmed: %s", error)
                return
            if trimmed:
                log.info("old deliveries trimmed: %d", trimmed)

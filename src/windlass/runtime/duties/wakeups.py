"""Listens for what happens elsewhere: enqueues that wake an idle worker, gates that open or close, requests to cancel.

Hints only. A wake-up that is lost costs a poll; a request to cancel is also looked for every poll.
"""

from __future__ import annotations

from uuid import UUID

from windlass.runtime.discovery import Discovery
from windlass.runtime.duties.gate_watcher import GateWatcher
from windlass.runtime.processor import Stop
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState
from windlass.store.parts.messages import WAKE_GATES, job_to_cancel


class Listener(Service):
    """Passes wake-ups on; a lost connection is a round that failed, and the next round listens again."""

    name = "listener"

    def __init__(
        self, state: WorkerState, discovery: Discovery, gate_watcher: GateWatcher, *, queues: tuple[str, ...] | None
    ) -> None:
        super().__init__(state.clock)
        self._state = state
        self._discovery = discovery
        self._gatekeeper = gate_watcher
        self._queues = queues
        self._steady = state.settings.assign_every > 0  # it scans by the clock, whatever happens in between

    async def round(self) -> float:
        async with self._state.store.wakeups() as messages:
            self._wake("*")  # what came while nobody listened
            self._gatekeeper.nudge()
            async for message in messages:
                job = job_to_cancel(message)
                if job is not None:
                    stop_cancelled(self._state, [job])
                elif message == WAKE_GATES:
                    self._gatekeeper.nudge()
                else:
                    self._wake(message)
        return 0

    def _wake(self, queue: str) -> None:
        if not self._steady and (queue == "*" or self._queues is None or queue in self._queues):
            self._discovery.nudge()


class Cancels(Service):
    """Looks for requests to cancel among the jobs that run here."""

    name = "cancels"

    def __init__(self, state: WorkerState) -> None:
        super().__init__(state.clock)
        self._state = state

    async def round(self) -> float:
        if self._state.leases.attempts:
            stop_cancelled(self._state, await self._state.store.cancel_requests(self._state.worker))
        return self._state.settings.poll


def stop_cancelled(state: WorkerState, jobs: list[UUID]) -> None:
    for job in jobs:
        attempt = state.leases.attempts.get(job)
        if attempt is not None:
            attempt.stop(Stop.CANCEL)

"""Listens for what happens elsewhere: enqueues that wake an idle worker, gates that open or close, requests to cancel.

Hints only. A wake-up that is lost costs a poll, and a request to cancel is read from the job's row: any user of the
database can send a message, and not every one may cancel jobs.
"""

from __future__ import annotations

from windlass.runtime.processor import Stop
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState
from windlass.store.parts.messages import WAKE_GATES, job_to_cancel


class WakeupListener(Service):
    """Passes wake-ups on; a lost connection is a round that failed, and the next round listens again."""

    name = "listener"

    def __init__(self, state: WorkerState, *, queues: tuple[str, ...] | None) -> None:
        super().__init__(state.clock)
        self._state = state
        self._queues = queues

    async def round(self) -> float:
        signals = self._state.signals
        async with self._state.store.wakeups() as messages:
            signals.jobs_may_be_due()  # what came while this worker did not listen
            signals.gates_changed()
            signals.cancel_requested()
            async for message in messages:
                job = job_to_cancel(message)
                if job is not None:
                    if job in self._state.leases.executions:
                        signals.cancel_requested()
                elif message == WAKE_GATES:
                    signals.gates_changed()
                elif message == "*" or self._queues is None or message in self._queues:
                    signals.jobs_may_be_due()
        return 0


class Cancels(Service):
    """Reads requests to cancel jobs that run here, every poll and when a message says that there is one."""

    name = "cancels"

    def __init__(self, state: WorkerState) -> None:
        super().__init__(state.clock)
        self._state = state
        state.signals.cancel_requested.subscribe(self.nudge)

    async def round(self) -> float:
        leases = self._state.leases
        if leases.executions:
            for job in await self._state.store.cancel_requests(self._state.worker):
                execution = leases.executions.get(job)
                if execution is not None:
                    execution.stop(Stop.CANCEL)
        return self._state.settings.poll

"""Reads what is closed, once a second and after each signal, and releases jobs in memory that must not start.

It fills `state.closures`, which the coordinator reads before it starts a job. Claims read gates themselves. This is for
jobs that were claimed before: they wait in memory, and go back to their place with no attempt burned. A running job
goes on. While the store does not answer, the last answer holds.
"""

from __future__ import annotations

import logging

from windlass.errors import StoreError, StoreUnavailable
from windlass.model.admission import BudgetRow, Closure
from windlass.observe.events import JobsReleased, ReleaseReason
from windlass.runtime.completer import Completer
from windlass.runtime.leases import release_unstarted
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

log = logging.getLogger("windlass")

OLDEST_SECONDS = 1.0  # that the last answer may be old


class GateWatcher(Service):
    """One read per poll, and at least one a second."""

    name = "gate_watcher"

    def __init__(self, state: WorkerState, completer: Completer) -> None:
        super().__init__(state.clock)
        self._state = state
        self._completer = completer
        self._every = min(state.settings.poll, OLDEST_SECONDS)
        self._last_failed = False
        state.signals.gates_changed.subscribe(self.nudge)

    async def round(self) -> float:
        answer = await self._read()
        if answer is not None:
            closures, budgets = answer
            closed, opened = self._state.closures.learn(closures, self.clock.monotonic())
            self._state.closures.learn_budgets(budgets, self._state.leases.known())
            for closure in closed:
                log.info("%s", _describe(closure))
            for closure in opened:
                log.info("%s", _describe(closure, open=True))
            released = self._state.closures.anything_closed and self._release_stopped()
            if opened or released:
                self._state.signals.jobs_may_be_due()
        return self._every

    async def _read(self) -> tuple[list[Closure], list[BudgetRow]] | None:
        """Not with the pauses of a service that failed: the first answer after an outage must not be late."""
        try:
            answer = await self._state.store.closures(), await self._state.store.budgets()
        except StoreError as error:
            if isinstance(error, StoreUnavailable):
                self._state.contact.failed(error, self.name)
                return None
            if not self._last_failed:
                log.warning("the gates can't be asked (%s); what was known of them holds", error)
            self._last_failed = True
            return None
        if self._last_failed:
            log.info("the gates can be asked again")
        self._last_failed = False
        return answer

    def _release_stopped(self) -> bool:
        """Jobs that wait in memory and must not start. A claim under way may bring more: the coordinator checks too."""
        state = self._state
        stopped = state.local_queue.drain(lambda job, at: state.closures.stops(job, at))
        for job in stopped:
            self._completer.submit(release_unstarted(job))
        if stopped:
            state.emit(JobsReleased(state.worker, len(stopped), ReleaseReason.CLOSED))
        return bool(stopped)


def _describe(closure: Closure, *, open: bool = False) -> str:
    match closure.state:
        case "spent":
            what = f"the budget of {closure.kind} {closure.name!r}"
            return f"{what} is open again" if open else f"{what} is spent: its jobs wait for the next window"
        case "held":
            return f"{closure.name!r} is open again" if open else f"all workers hold back at {closure.name!r}"
        case state:
            what = "the gate of everything" if closure.kind == "all" else f"the gate of {closure.kind} {closure.name!r}"
            return f"{what} is open again" if open else f"{what} is {state}"

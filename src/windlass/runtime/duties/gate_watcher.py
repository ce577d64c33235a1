"""Asks what is closed, once a second and whenever somebody says so, and gives back what must not start.

It fills `state.gates`, which the coordinator reads before it starts a job.

Claims look for themselves. This is for what was claimed before: it waits in memory, and goes back to its place with no
attempt burned. What runs goes on. A store that can't be asked leaves what was known.
"""

from __future__ import annotations

import logging

from windlass.errors import StoreError
from windlass.model.admission import BudgetRow, Closure
from windlass.runtime.discovery import Discovery
from windlass.runtime.leases import give_back
from windlass.runtime.service import Service
from windlass.runtime.state import WorkerState

log = logging.getLogger("windlass")

OLDEST = 1.0  # seconds that what is known may be old


class GateWatcher(Service):
    """One look per poll, and at least one a second."""

    name = "gate_watcher"

    def __init__(self, state: WorkerState, discovery: Discovery) -> None:
        super().__init__(state.clock)
        self._state = state
        self._discovery = discovery
        self._steady = state.settings.assign_every > 0  # it scans by the clock, whatever happens in between
        self._every = min(state.settings.poll, OLDEST)
        self._deaf = False  # the last look failed

    async def round(self) -> float:
        answer = await self._ask()
        if answer is not None:
            closures, budgets = answer
            closed, opened = self._state.gates.learn(closures, self.clock.monotonic())
            self._state.gates.learn_budgets(budgets, self._state.leases.known())
            for closure in closed:
                log.info("%s", _told(closure))
            for closure in opened:
                log.info("%s", _told(closure, open=True))
            gave_back = self._state.gates.closed and self._give_back()
            if (opened or gave_back) and not self._steady:
                self._discovery.nudge()
        return self._every

    async def _ask(self) -> tuple[list[Closure], list[BudgetRow]] | None:
        """Not with the pauses of a service that failed: the first answer after an outage must not be late."""
        try:
            answer = await self._state.store.closures(), await self._state.store.budgets()
        except StoreError as error:
            if not self._deaf:
                log.warning("the gates can't be asked (%s); what was known of them holds", error)
            self._deaf = True
            return None
        if self._deaf:
            log.info("the gates can be asked again")
        self._deaf = False
        return answer

    def _give_back(self) -> bool:
        """What waits in memory and must not start. A claim under way may bring more: the coordinator looks too."""
        state = self._state
        stopped = state.local_queue.drain(lambda job, at: state.gates.stops(job, at))
        for job in stopped:
            state.completer.submit(give_back(job))
        if stopped:
            log.info("unstarted jobs given back, because they are closed: %d", len(stopped))
        return bool(stopped)


def _told(closure: Closure, *, open: bool = False) -> str:
    match closure.state:
        case "spent":
            what = f"the budget of {closure.kind} {closure.name!r}"
            return f"{what} is open again" if open else f"{what} is spent: its jobs wait for the next window"
        case "held":
            return f"{closure.name!r} is open again" if open else f"everybody holds back at {closure.name!r}"
        case state:
            what = "the gate of everything" if closure.kind == "all" else f"the gate of {closure.kind} {closure.name!r}"
            return f"{what} is open again" if open else f"{what} is {state}"

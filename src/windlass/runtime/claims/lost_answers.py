"""Claims that the store committed and did not answer: the worker asks the store which jobs it holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from windlass.model.job import Lease
from windlass.runtime.state import WorkerState
from windlass.store.protocol import Held

log = logging.getLogger("windlass")

IN_DOUBT_SECONDS = 30.0  # for which a failed claim may still be committed: two statement timeouts
ASK_EVERY_SECONDS = 60.0  # where no claim failed: a server may freeze
UNREADABLE = "claimed, could not be read"


class LostAnswers:
    """Finds the jobs that this worker holds without knowing.

    A claim that failed may be committed all the same. A server that lost its client may still commit for as long as a
    statement may take, so that the question is repeated until an answer was asked for later than that. A server that
    froze may commit even later: so the question is also asked now and then without a reason.

    The race: deliveries are claimed beside the discovery, which asks. A claim may be committed when the store is asked,
    and its answer may be under way: the worker would take the job in twice, and run it twice. So a claim of deliveries,
    with its answer, and the question, with its answer, have `turn` one after the other.
    """

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self._failed_at: float | None = None  # when a claim failed that may still be committed
        self._asked_at = state.clock.monotonic()
        self.turn = asyncio.Lock()

    def claim_failed(self) -> None:
        self._failed_at = self._state.clock.monotonic()

    async def ask(self) -> Held | None:
        """The jobs that are held here by the store's account and not known here; None: it is too early to ask.

        What was known before the question is left out: it may be finished while the store answers, and would run again.
        """
        state, at = self._state, self._state.clock.monotonic()
        if at - self._asked_at < (ASK_EVERY_SECONDS if self._failed_at is None else state.settings.poll):
            return None
        async with self.turn:
            known, worker = state.leases.known(), state.worker
            held = await state.store.held(worker, known)
        self._asked_at = at
        if self._failed_at is not None and at - self._failed_at >= IN_DOUBT_SECONDS:
            self._failed_at = None
        if worker != state.worker:
            return None
        if held.jobs:
            log.warning("%d jobs were claimed without an answer, and are taken in", len(held.jobs))
        return held

    async def bury(self, unreadable: Iterable[Lease]) -> None:
        for lease in unreadable:
            log.error("job %s was claimed and cannot be read; it is buried", lease.job)
            await self._state.store.bury_unreadable(lease, UNREADABLE)

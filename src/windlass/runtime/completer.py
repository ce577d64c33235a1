"""Transitions on their way to the store, in batches.

In:   the transition of every attempt that ended
Out:  fenced writes, one round trip per batch
Next: pipeline.py, which says what follows a success

A group commit without a delay: while one batch is being written the next one gathers, so that a busy worker writes
hundreds at once and an idle one writes a single transition at once. Nothing is dropped because the database is away:
the batch waits, until it is written or its leases are lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from windlass import audit
from windlass.errors import StoreError, StoreUnavailable, WindlassError
from windlass.observe.events import JobSettled
from windlass.outcome import Transition
from windlass.runtime.crew import Crew
from windlass.runtime.service import backoff
from windlass.state import State, Verb
from windlass.store.admitting import WAKE_GATES
from windlass.store.protocol import Settled

log = logging.getLogger("windlass")

LARGEST_BATCH = 500
MOST_WAITING = 2 * LARGEST_BATCH  # transitions: with more the database cannot keep up, and nothing new is claimed
COMING_BACK = frozenset({Verb.FAIL, Verb.SNOOZE, Verb.ADVANCE})


class Completer:
    """Writes transitions in the order in which attempts ended."""

    def __init__(
        self,
        crew: Crew,
        *,
        due_again: Callable[[float], None],
        may_close: Callable[[], None],
        let_in: Callable[[set[str]], None],
        relieved: Callable[[], None],
    ) -> None:
        self._crew = crew
        self._relieved = relieved  # told that there may be claims again
        self._due_again = due_again  # told in how many seconds a job of this batch may be claimed again
        self._let_in = let_in  # told the queues in which parked jobs may run now
        self._may_close = may_close  # told that a budget may be spent by this batch, or a rate be held back
        self._waiting: list[Transition] = []
        self._writing: list[Transition] = []  # the batch that is being written
        self._something = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def submit(self, transition: Transition) -> None:
        self._waiting.append(transition)
        if not self._something.is_set():
            self._something.set()
            self._empty.clear()

    @property
    def backlog(self) -> int:
        return len(self._waiting)

    @property
    def overwhelmed(self) -> bool:
        return len(self._waiting) > MOST_WAITING

    async def drained(self) -> None:
        """Until everything that was submitted is written or lost."""
        await self._empty.wait()

    async def run(self) -> None:
        while True:
            await self._something.wait()
            overwhelmed = self.overwhelmed
            batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
            self._writing = batch
            await self._write(batch)
            self._writing = []
            if overwhelmed and not self.overwhelmed:
                self._relieved()  # every processor may be idle by now: nobody else would say so before the next poll
            if not self._waiting:
                self._something.clear()
                self._empty.set()

    def forget(self) -> list[Transition]:
        """The leases are lost: what is not known to be written.

        The batch that is being written may be committed all the same; then nothing changes when it is written again.
        """
        unwritten, self._waiting = [*self._writing, *self._waiting], []
        return unwritten

    async def _write(self, batch: list[Transition]) -> None:
        failures = 0
        while batch := [transition for transition in batch if self._crew.leases.holds(transition.lease)]:
            try:
                settled = await self._crew.store.settle(batch)
                done = [transition for transition in batch if transition.job not in settled.left]
                self._done(done, settled)
                await self._tell_others(done)
                batch = [transition for transition in batch if transition.job in settled.left]
            except StoreUnavailable as error:
                failures += 1
                pause = backoff(failures)
                if failures in (1, 5) or failures % 20 == 0:
                    log.warning("%d finished jobs wait for the database: %s", len(batch), error)
                await self._crew.clock.sleep(pause)
            except WindlassError as error:
                await self._write_one_by_one(batch, error)
                return
            except Exception:  # a fault of the engine: without its completer a worker would finish nothing any more
                failures += 1
                pause = backoff(failures)
                log.exception("%d finished jobs could not be written; trying again in %.1f s", len(batch), pause)
                await self._crew.clock.sleep(pause)

    async def _write_one_by_one(self, batch: list[Transition], error: WindlassError) -> None:
        """One transition of the batch cannot be stored: find it, so that its neighbours are not kept."""
        if len(batch) > 1:
            for transition in batch:
                await self._write([transition])
            return
        transition = batch[0]
        if transition.verb is Verb.BURY and transition.entry is None:
            log.error(
                "job %s cannot be settled at all: %s; its lease will end with this worker",
                transition.job,
                error,
            )
            self._crew.leases.settle([transition.lease])
            return
        log.error("what job %s left behind cannot be stored (%s); it is buried without it", transition.job, error)
        await self._write(
            [
                Transition(
                    lease=transition.lease,
                    verb=Verb.BURY,
                    attempt=transition.attempt,
                    crashes=transition.crashes,
                    reason="unstorable",
                    action=audit.DEAD,
                    followed=transition.followed,
                    limited=transition.limited,
                    charged=transition.charged,
                    cost_cents=transition.cost_cents,
                )
            ]
        )

    async def _tell_others(self, batch: list[Transition]) -> None:
        """Jobs may have been claimed just before everybody was to hold back, or before a budget was spent: whoever has
        them in memory looks now."""
        emptied, self._crew.gates.emptied = self._crew.gates.emptied, False
        if emptied or any(transition.hold is not None for transition in batch):
            with suppress(StoreError):  # they look once a second anyhow
                await self._crew.store.wake(WAKE_GATES)

    def _done(self, batch: list[Transition], settled: Settled) -> None:
        crew = self._crew
        crew.leases.settle(transition.lease for transition in batch)
        if settled.lost:
            log.warning("%d jobs were finished under a lost lease; nothing was changed", len(settled.lost))
        if crew.subscribers:
            for job, state in settled.states.items():
                crew.emit(JobSettled(job, state))
        if any(transition.charged or transition.hold is not None for transition in batch):
            self._may_close()
        delays = [transition.delay for transition in batch if transition.verb in COMING_BACK]
        if any(t.verb is Verb.WAIT and settled.states.get(t.job) is State.QUEUED for t in batch):
            delays.append(0.0)  # what it would have waited for was there already
        if delays:
            self._due_again(min(delay or 0.0 for delay in delays))
        if settled.let_in:
            self._let_in(set(settled.let_in))

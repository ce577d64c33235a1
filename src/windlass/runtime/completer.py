"""Transitions on their way to the store, in batches.

In:   the transition of every attempt that ended
Out:  fenced writes, one round trip per batch
Next: store/postgres/finish.py and store/sqlite/finish.py, which change the rows

A group commit without a delay: while one batch is being written the next one gathers, so that a busy worker writes
hundreds at once and an idle one writes a single transition at once. Nothing is dropped because the database is away or
refuses: what could not be written waits, until it is written or its leases are lost. Later transitions do not wait for
what was refused (see `refused_transitions.py`), and nothing new is claimed while transitions wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from windlass.clock import wait
from windlass.errors import StoreError, StoreUnavailable, WindlassError
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb
from windlass.observe.events import JobChanged
from windlass.runtime.refused_transitions import RefusedTransitions, burial_of, is_caused_by_values
from windlass.runtime.state import WorkerState
from windlass.store.parts.messages import WAKE_GATES
from windlass.store.protocol import Finished

log = logging.getLogger("windlass")

LARGEST_BATCH = 500
MOST_WAITING = 2 * LARGEST_BATCH  # transitions: with more the database cannot keep up, and nothing new is claimed
ROUNDS_AS_ONE_BATCH = 3  # in which what was refused is tried as a whole, before its halves are tried
MOST_REFUSALS_IN_A_ROW = 12  # a batch halves nine times, so that by then it is not one culprit that refuses them all
CLAIMABLE_AGAIN = frozenset({Verb.FAIL, Verb.SNOOZE, Verb.ADVANCE})


class Completer:
    """Writes transitions in batches. The store sorts a batch by id, and a refused transition is written later."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self._waiting: list[Transition] = []
        self._refused = RefusedTransitions(state.clock)
        self._away = False  # the database does not answer, and a batch waits for it
        self._in_a_row = 0  # refusals in this round without a write between them
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
        return len(self._waiting) + len(self._refused)

    @property
    def room(self) -> int | None:
        """How many new jobs may be claimed: None for as many as there is other room for."""
        if self._away or len(self._waiting) > MOST_WAITING:
            return 0
        return self._refused.room(held=len(self._state.leases)) if len(self._refused) else None

    @property
    def is_empty(self) -> bool:
        """Whether everything that was submitted is written or lost."""
        return self._empty.is_set()

    @property
    def is_overwhelmed(self) -> bool:
        return self.room == 0

    async def drained(self) -> None:
        """Until everything that was submitted is written or lost."""
        await self._empty.wait()

    async def run(self) -> None:
        overwhelmed = False
        while True:
            await self._until_due()
            overwhelmed |= self.is_overwhelmed
            batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
            self._writing = batch
            try:
                overwhelmed |= await self._write(batch)
                if self._refused.next_in() == 0:
                    await self._write_refused()
            except Exception as error:  # a fault of this file: no other part would write these transitions
                log.exception("the completer failed")
                self._refused.add(self._held(batch), error)
                self._refused.end_round()
            self._writing = []
            if overwhelmed and not self.is_overwhelmed:
                overwhelmed = False
                self._state.signals.store_relieved()  # every processor may be idle: nothing else claims before a poll
            if not self._waiting:
                self._something.clear()
                if not len(self._refused):
                    self._empty.set()

    def forget(self) -> list[Transition]:
        """The leases are lost: what is not known to be written.

        The batch that is being written may be committed all the same; then nothing changes when it is written again.
        What was refused is in that batch or waits beside it: each transition is returned once.
        """
        unwritten = {each.job: each for each in (*self._refused.transitions(), *self._writing, *self._waiting)}
        self._waiting = []
        self._refused.clear()
        return list(unwritten.values())

    async def _until_due(self) -> None:
        if len(self._refused):
            await wait(self._state.clock, self._something, self._refused.next_in())
        else:
            await self._something.wait()

    async def _write(self, batch: list[Transition]) -> bool:
        """Write what was not tried yet, however long the database is away; returns whether it was away."""
        failures = 0
        while batch := self._held(batch):
            error = await self._finish(batch)
            if error is None:
                continue
            if not isinstance(error, StoreUnavailable):
                if not len(self._refused):
                    self._warn(batch, error)
                self._refused.add(self._held(batch), error)  # from now on others are written without these
                break
            failures += 1
            self._away = True
            self._state.contact.failed(error, f"{len(batch)} finished jobs wait for the database")
            await self._state.contact.hold_off(self._state.contact.pause(failures))
        self._away = False
        return failures > 0

    async def _finish(self, batch: list[Transition]) -> Exception | None:
        """Write a batch; returns why some of it is not written, and those leases are still held."""
        try:
            finished = await self._state.store.finish(batch)
            done = [transition for transition in batch if transition.job not in finished.left]
            self._on_finished(done, finished)
            await self._wake_gate_watchers(done)
        except Exception as error:  # without its completer a worker would finish nothing any more
            return error
        left = [transition for transition in batch if transition.job in finished.left]
        return await self._finish(left) if left else None

    def _held(self, batch: Sequence[Transition]) -> list[Transition]:
        return [transition for transition in batch if self._state.leases.holds(transition.lease)]

    # What was refused

    async def _write_refused(self) -> None:
        """Try what was refused: all of it in one batch, and after a few rounds in halves, down to the culprits."""
        refused = self._refused.transitions()
        held = self._held(refused)
        self._refused.keep(transition.job for transition in held)
        self._in_a_row = 0
        await self._write_halves(held[:LARGEST_BATCH])
        self._refused.end_round()

    async def _write_halves(self, batch: list[Transition]) -> None:
        error = await self._finish(batch) if (batch := self._held(batch)) else None
        if error is None:
            self._in_a_row = 0
            return
        batch = self._held(batch)
        self._refused.add(batch, error)
        self._in_a_row += not is_caused_by_values(error)
        rounds = self._refused.rounds
        if self._in_a_row == 1 and rounds and rounds % 20 == 0:
            self._warn(batch, error)
        if len(batch) == 1:
            await self._bury_if_guilty(batch[0], error)
        elif is_caused_by_values(error) or (rounds >= ROUNDS_AS_ONE_BATCH and self._in_a_row < MOST_REFUSALS_IN_A_ROW):
            middle = len(batch) // 2
            await self._write_halves(batch[:middle])
            await self._write_halves(batch[middle:])

    def _warn(self, batch: Sequence[Transition], error: Exception) -> None:
        foreseen = isinstance(error, WindlassError)
        log.log(
            logging.WARNING if foreseen else logging.ERROR,
            "%d finished jobs cannot be written, and are tried again: %s",
            len(batch),
            error if foreseen else repr(error),
            exc_info=None if foreseen else error,
        )

    async def _bury_if_guilty(self, transition: Transition, error: Exception) -> None:
        """One transition was refused alone: bury its job if the transition is the reason."""
        if is_caused_by_values(error) or self._refused.is_guilty(transition):
            await self._bury(transition, error)

    async def _bury(self, transition: Transition, error: Exception) -> None:
        """Mark the job dead, with the verdict that could not be stored; if even that cannot be written, with the reason
        alone.

        A refusal of the database on the way changes nothing: the transition waits on, and is tried again.
        """
        buried = burial_of(transition, error, self._state.clock)
        log.error("job %s %s: %s; it is buried", transition.job, buried.reason, error)
        again = await self._finish([buried])
        if again is None or getattr(again, "of_database", False):
            return
        try:
            held = await self._state.store.bury_unreadable(transition.lease, buried.reason or "")
        except Exception as last:
            log.warning("job %s cannot be finished at all, and is tried again: %s", transition.job, last)
            return
        states = {transition.job: State.DEAD} if held else {}
        self._on_finished([buried], Finished(states=states, lost=frozenset({transition.job} - states.keys())))

    async def _wake_gate_watchers(self, batch: list[Transition]) -> None:
        """Other workers may have claimed jobs just before a rate was held back or a budget was spent: their gate
        watchers read that now, while the jobs wait in memory."""
        spent = self._state.closures.take_newly_spent()
        if spent or any(transition.hold is not None for transition in batch):
            with suppress(StoreError):  # they read it once a second anyhow
                await self._state.store.wake(WAKE_GATES)

    def _on_finished(self, batch: list[Transition], finished: Finished) -> None:
        state = self._state
        state.leases.forget(transition.lease for transition in batch)
        if len(self._refused):
            self._refused.record_written([transition for transition in batch if transition.job in finished.states])
            self._refused.remove(transition.job for transition in batch)
        if finished.lost:
            log.warning("nothing was changed for ends under a lost lease: %d", len(finished.lost))
        if state.subscribers.wants(JobChanged):
            for job, became in finished.states.items():
                state.emit(JobChanged(job, became))
            for job in finished.lost:
                state.emit(JobChanged(job, None))
        if any(transition.charged or transition.hold is not None for transition in batch):
            state.signals.gates_changed()
        delays = [transition.delay for transition in batch if transition.verb in CLAIMABLE_AGAIN]
        if any(t.verb is Verb.WAIT and finished.states.get(t.job) is State.QUEUED for t in batch):
            delays.append(0.0)  # what the job would have waited for was there already
        if delays:
            state.signals.jobs_due_in(min(delay or 0.0 for delay in delays))
        if finished.unparked_queues:
            state.signals.jobs_unparked(set(finished.unparked_queues))

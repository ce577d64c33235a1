"""Transitions on their way to the store, in batches.

In:   the transition of every attempt that ended
Out:  fenced writes, one round trip per batch
Next: store/postgres/finish.py and store/sqlite/finish.py, which change the rows

A group commit without a delay: while one batch is being written the next one gathers, so that a busy worker writes
hundreds at once and an idle one writes a single transition at once. Nothing is dropped because the database is away or
refuses: what could not be written waits, until it is written or its leases are lost. Later transitions do not wait for
what was refused (see `refused.py`), and nothing new is claimed while something waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from windlass.clock import wait
from windlass.errors import StoreError, StoreUnavailable, WindlassError
from windlass.model.outcome import Transition
from windlass.model.state import State, Verb
from windlass.observe.events import JobFinished
from windlass.runtime.refused import Refused, burial, is_of_values
from windlass.runtime.state import WorkerState
from windlass.store.parts.messages import WAKE_GATES
from windlass.store.protocol import Finished

log = logging.getLogger("windlass")

LARGEST_BATCH = 500
MOST_WAITING = 2 * LARGEST_BATCH  # transitions: with more the database cannot keep up, and nothing new is claimed
TOGETHER = 3  # rounds in which what was refused is tried as a whole, before its halves are tried
MOST_IN_A_ROW = 12  # refusals: a batch halves nine times, so that by then it is not one culprit that refuses them all
COMING_BACK = frozenset({Verb.FAIL, Verb.SNOOZE, Verb.ADVANCE})


class Completer:
    """Writes transitions in the order in which attempts ended."""

    def __init__(
        self,
        state: WorkerState,
        *,
        due_again: Callable[[float], None],
        may_close: Callable[[], None],
        let_in: Callable[[set[str]], None],
        relieved: Callable[[], None],
    ) -> None:
        self._state = state
        self._relieved = relieved  # told that there may be claims again
        self._due_again = due_again  # told in how many seconds a job of this batch may be claimed again
        self._let_in = let_in  # told the queues in which parked jobs may run now
        self._may_close = may_close  # told that a budget may be spent by this batch, or a rate be held back
        self._waiting: list[Transition] = []
        self._refused = Refused(state.clock)
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
    def overwhelmed(self) -> bool:
        return self.room == 0

    async def drained(self) -> None:
        """Until everything that was submitted is written or lost."""
        await self._empty.wait()

    async def run(self) -> None:
        overwhelmed = False
        while True:
            await self._until_due()
            overwhelmed |= self.overwhelmed
            batch, self._waiting = self._waiting[:LARGEST_BATCH], self._waiting[LARGEST_BATCH:]
            self._writing = batch
            try:
                overwhelmed |= await self._write(batch)
                if self._refused.next_in() == 0:
                    await self._write_refused()
            except Exception as error:  # a fault of this file: no other part would write what it holds
                log.exception("the completer failed")
                self._refused.add(self._held(batch), error)
                self._refused.tried()
            self._writing = []
            if overwhelmed and not self.overwhelmed:
                overwhelmed = False
                self._relieved()  # every processor may be idle by now: nobody else would say so before the next poll
            if not self._waiting:
                self._something.clear()
                if not len(self._refused):
                    self._empty.set()

    def forget(self) -> list[Transition]:
        """The leases are lost: what is not known to be written.

        The batch that is being written may be committed all the same; then nothing changes when it is written again.
        What was refused is in that batch or waits beside it: each transition is named once.
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
        """Write what was not tried yet, however long the database is away; whether it was."""
        failures = 0
        while batch := self._held(batch):
            error = await self._settle(batch)
            if error is None:
                continue
            if not isinstance(error, StoreUnavailable):
                if not len(self._refused):
                    self._warn(batch, error)
                self._refused.add(self._held(batch), error)  # from now on others are written without these
                break
            failures += 1
            self._away = True
            if failures in (1, 5) or failures % 20 == 0:
                log.warning("%d finished jobs wait for the database: %s", len(batch), error)
            await self._state.contact.hold_off(self._state.contact.pause(failures))
        self._away = False
        return failures > 0

    async def _settle(self, batch: list[Transition]) -> Exception | None:
        """Write a batch; the answer is why some of it is not written, and those are still held."""
        try:
            settled = await self._state.store.finish(batch)
            done = [transition for transition in batch if transition.job not in settled.left]
            self._done(done, settled)
            await self._tell_others(done)
        except Exception as error:  # without its completer a worker would finish nothing any more
            return error
        left = [transition for transition in batch if transition.job in settled.left]
        return await self._settle(left) if left else None

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
        self._refused.tried()

    async def _write_halves(self, batch: list[Transition]) -> None:
        error = await self._settle(batch) if (batch := self._held(batch)) else None
        if error is None:
            self._in_a_row = 0
            return
        batch = self._held(batch)
        self._refused.add(batch, error)
        self._in_a_row += not is_of_values(error)
        rounds = self._refused.rounds
        if self._in_a_row == 1 and rounds and rounds % 20 == 0:
            self._warn(batch, error)
        if len(batch) == 1:
            await self._judge(batch[0], error)
        elif is_of_values(error) or (rounds >= TOGETHER and self._in_a_row < MOST_IN_A_ROW):
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

    async def _judge(self, transition: Transition, error: Exception) -> None:
        """One transition was refused alone: bury its job if the transition is the reason."""
        if is_of_values(error) or self._refused.is_guilty(transition):
            await self._bury(transition, error)

    async def _bury(self, transition: Transition, error: Exception) -> None:
        """Dead, with the verdict that could not be stored; if even that cannot be written, with a word and no more.

        A refusal of the database on the way changes nothing: the transition waits on, and is judged again.
        """
        buried = burial(transition, error, self._state.clock)
        log.error("job %s %s: %s; it is buried", transition.job, buried.reason, error)
        again = await self._settle([buried])
        if again is None or getattr(again, "of_database", False):
            return
        try:
            held = await self._state.store.put_aside(transition.lease, buried.reason or "")
        except Exception as last:
            log.warning("job %s cannot be settled at all, and is tried again: %s", transition.job, last)
            return
        states = {transition.job: State.DEAD} if held else {}
        self._done([buried], Finished(states=states, lost=frozenset({transition.job} - states.keys())))

    async def _tell_others(self, batch: list[Transition]) -> None:
        """Jobs may have been claimed just before everybody was to hold back, or before a budget was spent: whoever has
        them in memory looks now."""
        emptied, self._state.gates.emptied = self._state.gates.emptied, False
        if emptied or any(transition.hold is not None for transition in batch):
            with suppress(StoreError):  # they look once a second anyhow
                await self._state.store.wake(WAKE_GATES)

    def _done(self, batch: list[Transition], settled: Finished) -> None:
        state = self._state
        state.leases.forget(transition.lease for transition in batch)
        if len(self._refused):
            self._refused.written([transition for transition in batch if transition.job in settled.states])
            self._refused.remove(transition.job for transition in batch)
        if settled.lost:
            log.warning("%d jobs were finished under a lost lease; nothing was changed", len(settled.lost))
        if state.subscribers:
            for job, became in settled.states.items():
                state.emit(JobFinished(job, became))
        if any(transition.charged or transition.hold is not None for transition in batch):
            self._may_close()
        delays = [transition.delay for transition in batch if transition.verb in COMING_BACK]
        if any(t.verb is Verb.WAIT and settled.states.get(t.job) is State.QUEUED for t in batch):
            delays.append(0.0)  # what it would have waited for was there already
        if delays:
            self._due_again(min(delay or 0.0 for delay in delays))
        if settled.let_in:
            self._let_in(set(settled.let_in))

"""How many jobs a worker claims: one demand per group of job types that wait for the same processors.

A program without phases that name a pool of their own has one demand with every type in it, and makes one claim. A
phase with a small pool has a demand of its own: claimed together with the others, its jobs would fill the memory in
front of that pool while the processors of other phases are idle.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.declare.pipeline import phases
from windlass.runtime.completer import Completer
from windlass.runtime.state import WorkerState

CLAIMS_AHEAD = 4  # claims: a worker claims ahead what its processors finish during this number of claims
LEAST_AHEAD, MOST_AHEAD = 0.02, 0.1  # seconds of work that are claimed ahead
LARGEST_CLAIM = 500  # jobs
MEASURE_EVERY = 0.02  # seconds between two measurements of how fast attempts end


class Demand:
    """Some types, the pool they wait for, and how fast it works."""

    def __init__(
        self,
        state: WorkerState,
        completer: Completer,
        types: Sequence[str],
        *,
        phase: str | None = None,
        beside: Sequence[Demand] = (),
    ) -> None:
        self.types = tuple(types)
        self.phase = phase  # None: every pool that has no demand of its own
        self._state = state
        self._completer = completer
        self._beside = beside
        self._ended = 0  # attempts since the rate was last measured
        self._measured_at = state.clock.monotonic()
        self._rate = 0.0  # attempts per second, lately
        self._took = MOST_AHEAD / CLAIMS_AHEAD  # seconds of a claim, lately
        self._ahead = MOST_AHEAD  # seconds of work in memory

    @property
    def processors(self) -> int:
        pools = self._state.pools
        return pools.total if self.phase is None else pools.size(self.phase)

    def count_ended(self) -> None:
        """An attempt in one of its processors ended."""
        self._ended += 1

    def record_claim(self, took: float) -> None:
        """A claim took so many seconds. The faster claims are, the fewer jobs have to wait in memory, out of turn."""
        self._took = 0.7 * self._took + 0.3 * took
        self._ahead = min(max(CLAIMS_AHEAD * self._took, LEAST_AHEAD), MOST_AHEAD)

    def room(self) -> int:
        """How many jobs to claim: free processors, and what they will take until the next claim has answered."""
        state, settings = self._state, self._state.settings
        most = self._completer.room
        if most == 0:
            return 0
        free = state.pools.free if self.phase is None else state.pools.free_in(self.phase)
        ahead = min(self._prefetch(), settings.local_queue or LARGEST_CLAIM)
        room = min(free + ahead - self._waiting(), LARGEST_CLAIM if most is None else most)
        return max(0, min(room, settings.discovery_batch or room))

    def is_low(self) -> bool:
        """Whether the processors will soon have nothing to take from memory."""
        waiting = self._waiting()
        return waiting == 0 or waiting < self._rate * self._ahead / 2

    def _waiting(self) -> int:
        queue = self._state.local_queue
        if self.phase is not None:
            return queue.waiting_of(self.types)
        return len(queue) - sum(other._waiting() for other in self._beside)

    def _prefetch(self) -> int:
        """Jobs the processors will take until the next ones are there, from how many attempts ended lately."""
        now = self._state.clock.monotonic()
        passed = now - self._measured_at
        if passed >= MEASURE_EVERY:
            self._rate = 0.5 * self._rate + 0.5 * self._ended / passed
            self._measured_at, self._ended = now, 0
        return int(self._rate * self._ahead)


class Demands:
    """All demands of one worker."""

    def __init__(self, state: WorkerState, completer: Completer, types: Sequence[str]) -> None:
        pools = state.pools
        self._own: list[Demand] = []  # phases with a pool of their own
        for phase, known in phases(state.registry).items():
            served = [type for type in known if type in types]
            if served and pools.size(phase) < pools.total:
                self._own.append(Demand(state, completer, served, phase=phase))
        taken = {type for demand in self._own for type in demand.types}
        others = [type for type in types if type not in taken]
        self._common = Demand(state, completer, others, beside=self._own)
        self._by_phase = {demand.phase: demand for demand in self._own}
        self._common_first = False

    def of(self, phase: str) -> Demand:
        return self._by_phase.get(phase, self._common)

    def have_room(self) -> bool:
        return any(demand.room() for demand in (self._common, *self._own) if demand.types)

    def in_turn(self) -> list[Demand]:
        """In the order in which a round serves them: the earlier phase first.

        The types without a pool of their own could take every processor, and so could all phases together: each side
        comes first in every second round.
        """
        if not self._own:
            return [self._common]
        if not self._common.types:
            return self._own
        self._common_first = not self._common_first
        return [self._common, *self._own] if self._common_first else [*self._own, self._common]

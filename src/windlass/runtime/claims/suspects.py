"""Claims of suspects: jobs that were running when their worker died, and may kill the next one.

Where the program can be imported in a child process, suspects run in children, a few at a time. Plain claims leave
suspects out. A rescan, and a claim after a suspect ended, first claims as many jobs of any kind as suspects may be
added, and takes what is due first: a suspect keeps its place in the order, and no more are held than can run.

Where it cannot be imported, a suspect runs in this process while the worker holds nothing else.
"""

from __future__ import annotations

from typing import Protocol

from windlass.model.filter import Filter, Kind, Term, Value, parse
from windlass.runtime.claims.demand import Demand
from windlass.runtime.state import WorkerState
from windlass.store.protocol import Claimed, Suspects

MOST_SUSPECTS = 4  # in children of one worker, and half of the processors at most: the others are for other jobs
LONGEST_WAIT_SECONDS = 10.0  # of a suspect that must run alone, while other jobs are claimed
DUE_SUSPECTS = "state:queued,failed crashes:>0 due:>=0s"


class SendsClaim(Protocol):
    async def __call__(
        self,
        room: int,
        types: tuple[str, ...],
        *,
        rescan: bool,
        suspects: Suspects,
        queues: tuple[str, ...] | None = None,
        paces: bool = True,
    ) -> Claimed:
        """Send one claim to the store and take in what it brings."""
        ...


class SuspectClaims:
    """Turns one claim of discovery into the claims with, without and only suspects that it needs."""

    def __init__(self, state: WorkerState, types: tuple[str, ...], *, send: SendsClaim) -> None:
        self._state = state
        self._types = types
        self._send = send
        self.isolates = all(state.children.importable(definition) for definition in state.registry)
        self._found_in: set[tuple[str, ...]] = set()  # types of which the last claim found suspects: there may be more
        # Where suspects must run alone:
        known = tuple(Value(type, quoted=True) for type in types)
        self._due_suspects = Filter(DUE_SUSPECTS, (*parse(DUE_SUSPECTS).terms, Term(Kind.NAME, "type", known)))
        self._due_since: float | None = None  # suspects are due
        self._alone_since: float | None = None  # a suspect has this worker for itself
        self._others_until = 0.0  # after it, other jobs have the worker until then
        self._none_of: set[str] = set()  # types of which no such suspect could be claimed

    async def claim(
        self,
        room: int,
        types: tuple[str, ...],
        processors: int,
        *,
        rescan: bool,
        queues: tuple[str, ...] | None = None,
    ) -> Claimed:
        if self.isolates:
            return await self._claim_beside_suspects(room, types, processors, rescan=rescan, queues=queues)
        return await self._claim_or_isolate(room, types, rescan=rescan, queues=queues)

    # In child processes

    def may_add(self, demand: Demand) -> bool:
        """Whether a claim for this demand may bring another suspect."""
        return demand.types in self._found_in and self._room(demand.types, demand.processors) > 0

    async def _claim_beside_suspects(
        self, room: int, types: tuple[str, ...], processors: int, *, rescan: bool, queues: tuple[str, ...] | None
    ) -> Claimed:
        """First as many jobs of any kind as suspects may be added, where there may be some; then only other jobs."""
        few = min(room, self._room(types, processors))
        first = Claimed(jobs=[])
        if few > 0 and (rescan or types in self._found_in):
            first = await self._send(few, types, rescan=True, suspects=Suspects.WITH, queues=queues, paces=rescan)
            if any(job.suspect for job in first.jobs):
                self._found_in.add(types)
            else:
                self._found_in.discard(types)
            if rescan and len(first.jobs) < few and not first.filled:
                return first  # of any kind, nothing else is due
        if room == len(first.jobs):
            return first
        rest = await self._send(room - len(first.jobs), types, rescan=rescan, suspects=Suspects.WITHOUT, queues=queues)
        waits = [each.next_due for each in (first, rest) if each.next_due is not None]
        return Claimed(
            jobs=first.jobs + rest.jobs, next_due=min(waits, default=None), filled=first.filled or rest.filled
        )

    def _room(self, types: tuple[str, ...], processors: int) -> int:
        queue, half = self._state.local_queue, max(1, self._state.pools.total // 2)
        left = min(MOST_SUSPECTS, half) - queue.suspects()
        return min(left, max(1, processors // 2) - queue.suspects(types))

    # Alone in this process

    async def _claim_or_isolate(
        self, room: int, types: tuple[str, ...], *, rescan: bool, queues: tuple[str, ...] | None
    ) -> Claimed:
        """A suspect that no child can run is run here, alone: no other job may die with it.

        For as long as it had the worker for itself other jobs have it, if there are any, and then the next suspect may.
        """
        state, now = self._state, self._state.clock.monotonic()
        if state.local_queue.suspects():
            return Claimed(jobs=[])
        if self._alone_since is not None:
            self._others_until, self._alone_since = 2 * now - self._alone_since, None
        if rescan:
            await self._search_suspects()
        their_turn = now >= self._others_until
        if self._due_since is not None and their_turn:
            alone = await self._claim_alone(types, queues)
            if alone.jobs:
                return alone
        if self._due_since is not None and now - max(self._due_since, self._others_until) > LONGEST_WAIT_SECONDS:
            return Claimed(jobs=[])  # until this worker is empty, or other jobs would keep the suspect waiting for ever
        others = await self._send(room, types, rescan=rescan, suspects=Suspects.WITHOUT, queues=queues)
        if others.jobs or self._due_since is None or their_turn:
            return others
        alone = await self._claim_alone(types, queues)
        return alone if alone.jobs else others

    async def _claim_alone(self, types: tuple[str, ...], queues: tuple[str, ...] | None) -> Claimed:
        """One suspect, when this worker holds nothing."""
        if len(self._state.leases):
            return Claimed(jobs=[])
        alone = await self._send(1, types, rescan=True, suspects=Suspects.ONLY, queues=queues)
        if alone.jobs:
            self._alone_since = self._state.clock.monotonic()
            return alone
        self._none_of.update(types)
        if self._none_of.issuperset(self._types):
            self._due_since = None  # due all the same, but in a queue that other workers serve
        return alone

    async def _search_suspects(self) -> None:
        found = await self._state.store.search(self._due_suspects, page=1)
        if not found:
            self._due_since = None
        elif self._due_since is None:
            self._due_since = self._state.clock.monotonic()
            self._none_of.clear()

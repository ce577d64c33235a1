"""Discovery at the steady pace: one scan per period, by the clock, whatever happens in between."""

from __future__ import annotations

from windlass.declare.pipeline import phases
from windlass.runtime.claims.demand import LARGEST_CLAIM
from windlass.runtime.discovery import Discovery
from windlass.runtime.pool import Processor


class SteadyDiscovery(Discovery):
    """The one place where the steady pace ignores wake-ups. Only `resume` makes a scan come early."""

    def nudge(self) -> None:
        """Jobs may be due: the next scan claims them."""

    def on_slot_freed(self, processor: Processor) -> None:
        """The coordinator assigns by the clock too: what it takes from the local queue the next scan replaces."""

    def poll_in(self, seconds: float) -> None:
        """The next scan claims what is due by then."""

    def on_unparked(self, queues: set[str]) -> None:
        self._state.store.wake_later(queues)

    async def claim_all(self) -> float:
        """A scan per phase, a few jobs each: pipelines, the earlier phase first, then the queues of all other types."""
        in_phases: set[str] = set()
        for phase, known in phases(self._state.registry).items():
            types = tuple(type for type in known if type in self._types)
            in_phases.update(types)
            if types:
                await self._scan(phase, types)
        others = tuple(type for type in self._types if type not in in_phases)
        if others:
            for queue in self._queues or await self._known_queues(others):
                await self._scan(queue, others, queues=(queue,))
        return self._state.settings.poll

    async def _scan(self, phase: str, types: tuple[str, ...], *, queues: tuple[str, ...] | None = None) -> None:
        state, settings = self._state, self._state.settings
        left = (settings.local_queue or LARGEST_CLAIM) - state.local_queue.waiting(phase)
        most = self._completer.room
        room = min(left, settings.discovery_batch or left, left if most is None else most)
        if room > 0:
            await self.suspects.claim(room, types, state.pools.size(phase), rescan=True, queues=queues)

    async def _known_queues(self, types: tuple[str, ...]) -> list[str]:
        """The queues that job types name, and those that only an enqueue named."""
        stored = {row.queue for row in await self._state.store.queues()}
        return sorted(stored | {each.queue for each in self._state.registry if each.type in types})

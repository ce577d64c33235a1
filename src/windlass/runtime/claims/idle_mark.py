"""The idle mark: a worker commits it before it sleeps, so that an enqueue sees it and wakes the worker."""

from __future__ import annotations

from windlass.runtime.state import WorkerState

BUSY_BEFORE_UNMARKED = 0.2  # seconds of full claims before the mark is taken back


class IdleMark:
    """Whether the row of this incarnation is marked idle."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self._set_at = 0.0
        self.is_set = False

    async def set(self) -> None:
        await self._state.store.set_idle(self._state.worker, idle=True)
        self.is_set = True
        self._set_at = self._state.clock.monotonic()

    async def clear(self) -> None:
        """The worker claims as much as it has room for. The mark stays for a while: it may be idle again soon."""
        if self.is_set and self._state.clock.monotonic() - self._set_at > BUSY_BEFORE_UNMARKED:
            await self._state.store.set_idle(self._state.worker, idle=False)
            self.is_set = False

    def forget(self) -> None:
        """A new incarnation is registered: the mark went with the row of the old one."""
        self.is_set = False

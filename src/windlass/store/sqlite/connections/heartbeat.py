"""The connection that renews a worker's lease, used in a thread with its own loop, where a call may block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.store.sql import query
from windlass.store.sqlite.connections.file import connect, translate_errors, write_transaction
from windlass.store.sqlite.rows import micros, span

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path
    from uuid import UUID

    from windlass.clock import Clock


PAUSE = 0.002  # seconds between two tries for the lock: a beat goes before other writers


class SqliteHeartbeat:
    """Renews one worker's lease. The first beat opens the connection, in the thread that beats."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._connection: sqlite3.Connection | None = None

    async def beat(
        self, worker: UUID, lease: float, held: int = 0, pools: str | None = None, *, within: float | None = None
    ) -> bool:
        with translate_errors(self._path):
            if self._connection is None:
                self._connection = connect(self._path)
            # It waits no longer than the lease: a later beat would find the worker dead. But it waits longer than
            # `within`: a new connection would wait for the same lock, and while the file is locked no other process
            # can mark this worker dead.
            with write_transaction(self._connection, patience=lease, pause=PAUSE):
                now = micros(self._clock.now())
                parameters = {"id": str(worker), "lease": span(lease), "held": held, "pools": pools, "now": now}
                return self._connection.execute(query("sqlite", "beat"), parameters).rowcount > 0

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

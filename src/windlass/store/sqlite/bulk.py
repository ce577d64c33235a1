"""The enqueue of many jobs at once, all of them or none, without making beats and finishes wait.

SQLite has one writer: while an enqueue writes, no beat and no finish can. Six sevenths of the time are spent reading
the jobs' JSON. So it is read into a temporary table, which is a file of its own and locks nothing; one statement then
copies the rows. An enqueue that would hold the lock for longer than a third of the lease is rolled back and refused.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windlass.errors import EnqueueError
from windlass.store.parts.encoding import encode_jobs
from windlass.store.sql import query
from windlass.store.sqlite.connections.file import ConnectionThread, code, write_transaction
from windlass.store.sqlite.rows import TIMES, micros, named, numbered

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.clock import Clock
    from windlass.model.job import NewJob

PAGE = 500  # jobs per statement: bounds the JSON text, not the transaction
STAGE_FROM = 5_000  # jobs: fewer are written in less time than it takes to open a connection and make a table
STEPS = 10_000  # of SQLite's virtual machine between two reads of the clock: about a millisecond
THEN = -(1 << 60)  # stands for the time of the copy, in microseconds: far before any time that a job may have


def insert(connection: sqlite3.Connection, texts: Sequence[str], now: int) -> None:
    """Write simple jobs, in the transaction that is open."""
    for text in texts:
        connection.execute(numbered(query("sqlite", "enqueue")), named((text, now)))


def pages(jobs: Sequence[NewJob]) -> list[str]:
    """The jobs as JSON texts; they are encoded before the file is locked."""
    return [encode_jobs(jobs[start : start + PAGE]) for start in range(0, len(jobs), PAGE)]


async def enqueue_staged(path: Path, clock: Clock, jobs: Sequence[NewJob], hold: float) -> None:
    """Write simple jobs by way of a temporary table, on a connection of its own."""
    thread = ConnectionThread(path, name="bulk")

    def write(connection: sqlite3.Connection) -> None:
        columns, stage, copy = _statements()
        connection.execute(f"CREATE TEMP TABLE staged AS SELECT {columns} FROM windlass_jobs WHERE false")
        for start in range(0, len(jobs), PAGE):
            connection.execute(stage, named((encode_jobs(jobs[start : start + PAGE]), THEN)))
        with write_transaction(connection), bounded(connection, path, len(jobs), hold):
            connection.execute(copy, {"then": THEN, "now": micros(clock.now())})

    try:
        await thread.call(write)
    finally:
        await thread.close()  # and with it the table


@contextmanager
def bounded(connection: sqlite3.Connection, path: Path, jobs: int, hold: float) -> Iterator[None]:
    """Interrupt a statement that runs for longer than `hold` seconds; what it wrote is rolled back."""
    end = time.monotonic() + hold
    connection.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if code(error) != sqlite3.SQLITE_INTERRUPT:
            raise
        raise EnqueueError(
            f"{jobs} jobs at once would keep {path} locked for longer than {hold:g} s, a third of the lease, and "
            "nothing was enqueued; enqueue them in several calls, or set a longer WINDLASS_LEASE"
        ) from None
    finally:
        connection.set_progress_handler(None, 0)


def _statements() -> tuple[str, str, str]:
    """The columns of an enqueue, the enqueue into the temporary table, and the copy from there."""
    enqueue = query("sqlite", "enqueue")
    into = re.search(r"INSERT INTO windlass_jobs \(([^)]*)\)", enqueue)
    assert into is not None, "the statement enqueue names its columns"
    names = [name.strip() for name in into[1].split(",")]
    values = [
        f"CASE WHEN {name} < :then / 2 THEN {name} - :then + :now ELSE {name} END" if name in TIMES else name
        for name in names
    ]
    columns = ", ".join(names)
    copy = f"INSERT INTO windlass_jobs ({columns}) SELECT {', '.join(values)} FROM temp.staged ORDER BY rowid"
    return columns, numbered(enqueue.replace("INSERT INTO windlass_jobs", "INSERT INTO temp.staged")), copy

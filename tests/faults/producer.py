"""A process that enqueues one unique job on many connections at once, and rolls half of them back.

`python producer.py 16` prints `ready` when all its connections are open, begins when the gate opens, and prints for
each connection what it was answered: `new` or `existing`, whether it committed, and the job. `python producer.py hold`
enqueues, prints `held` and keeps its transaction open.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

from windlass import Windlass

URL = os.environ["WINDLASS_URL"]
GATE = Path(os.environ["FAULT_GATE"])
PATIENCE = 60.0  # seconds to wait for a lock of the file
LOOK = 0.005  # seconds between two checks of the gate

app = Windlass(URL)


@app.job(unique=True)
def alone() -> None:
    """One of its kind."""


def connect() -> Any:
    if URL.startswith("sqlite"):
        return sqlite3.connect(URL.removeprefix("sqlite:///"), timeout=PATIENCE, check_same_thread=False)
    return psycopg.connect(URL)


def say(*words: object) -> None:
    """One write: lines of several threads never mix."""
    os.write(sys.stdout.fileno(), (" ".join(map(str, words)) + "\n").encode())


def produce(connection: Any, commits: bool) -> None:
    while not GATE.exists():
        time.sleep(LOOK)
    job = alone.options(conn=connection).enqueue()
    if commits:
        connection.commit()
    else:
        connection.rollback()
    say("existing" if job.existing else "new", "committed" if commits else "back", job.id)


def produce_many(count: int) -> None:
    connections = [connect() for _ in range(count)]
    threads = [
        threading.Thread(target=produce, args=(connection, bool(place % 2)))
        for place, connection in enumerate(connections)
    ]
    for thread in threads:
        thread.start()
    say("ready")
    for thread in threads:
        thread.join()


def hold() -> None:
    connection = connect()
    job = alone.options(conn=connection).enqueue()
    say("held", job.id)
    signal.pause()


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        hold()
    else:
        produce_many(int(sys.argv[1]))

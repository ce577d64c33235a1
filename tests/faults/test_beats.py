"""A beat that is slow or is not answered costs a worker nothing while there is time for another one."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import datetime
from uuid import UUID

from windlass import State

from .process import Process
from .proxy import proxied
from .rig import FaultLab

TIMES = {"WINDLASS_LEASE": "6s", "WINDLASS_BEAT": "2s", "WINDLASS_MARGIN": "1s"}
LOCKED = 5.5  # seconds: from a beat, over the next one, until it would be late if it counted its pause from its end


def beaten(lab: FaultLab, worker: Process) -> tuple[UUID, datetime]:
    row = lab.row(worker)
    assert row is not None
    return row.id, row.alive_until


def test_a_file_that_was_locked_for_most_of_a_lease_costs_no_job(sqlite_lab: FaultLab) -> None:
    lab = sqlite_lab
    (job,) = lab.enqueue("gated")
    worker = lab.ready(**TIMES)
    lab.until(lambda: bool(lab.begins(job)), "the job runs")
    first, before = beaten(lab, worker)
    lab.until(lambda: beaten(lab, worker)[1] > before, "a beat came through")

    with closing(sqlite3.connect(lab.url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        time.sleep(LOCKED)
        locked = beaten(lab, worker)[1]
        holder.execute("ROLLBACK")

    for _ in range(2):  # the beat that waited for the lock, and the next one
        lab.until(lambda: beaten(lab, worker)[1] > locked, "another beat came through")  # noqa: B023
        locked = beaten(lab, worker)[1]
    lab.open_gate()
    lab.until_final([job])
    assert beaten(lab, worker)[0] == first
    assert (lab.find(job).status, lab.find(job).fence, len(lab.begins(job))) == (State.SUCCEEDED, 1, 1)


def test_a_beat_whose_connection_is_silent_is_made_on_another(postgres_lab: FaultLab) -> None:
    lab = postgres_lab
    (job,) = lab.enqueue("gated")
    with proxied(lab.url) as proxy:
        worker = lab.ready(WINDLASS_DIRECT_URL=proxy.url, **TIMES)  # for the beat and LISTEN only
        lab.until(lambda: bool(lab.begins(job)), "the job runs")
        first, before = beaten(lab, worker)
        lab.until(lambda: beaten(lab, worker)[1] > before, "a beat came through")

        proxy.silence()
        silent, known = beaten(lab, worker)[1], proxy.accepted
        lab.until(lambda: beaten(lab, worker)[1] > silent, "a beat came through on another connection")

        assert proxy.accepted > known
        lab.open_gate()
        lab.until_final([job])
    assert beaten(lab, worker)[0] == first
    assert (lab.find(job).status, lab.find(job).fence, len(lab.begins(job))) == (State.SUCCEEDED, 1, 1)

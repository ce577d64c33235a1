"""The supervisor: replaces what dies, and holds no connection that could die itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from windlass import State

from .process import PROC
from .rig import FaultLab


def test_a_killed_child_is_replaced_and_its_job_done_again(postgres_lab: FaultLab) -> None:
    lab = postgres_lab
    supervisor = lab.start("--processes", "2", "--concurrency", "1")
    lab.until(lambda: len(lab.workers()) == 2, "both children are registered")
    jobs = lab.enqueue("gated", 2)
    lab.until(lambda: len(lab.ledger()) == 2, "each child has a job")

    (victim,) = {entry.pid for entry in lab.begins(jobs[0])}
    os.kill(victim, signal.SIGKILL)
    lab.until(lambda: len(lab.begins(jobs[0])) == 2, "another worker has its job")
    lab.until(lambda: sum(not worker.dead for worker in lab.workers()) == 2, "a third child is registered")
    lab.open_gate()
    lab.until_final(jobs)

    assert lab.counts() == {State.SUCCEEDED: 2}
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0
    assert [worker for worker in lab.workers() if not worker.dead] == []


def test_the_supervisor_holds_no_connection(postgres_lab: FaultLab) -> None:
    lab = postgres_lab
    supervisor = lab.start("--processes", "2")
    lab.until(lambda: len(lab.workers()) == 2, "both children are registered")
    children = [pid for pid in supervisor.descendants() if tcp_sockets(pid)]

    assert len(children) == 2  # so that the search itself is known to work
    assert tcp_sockets(supervisor.pid) == set()


def tcp_sockets(pid: int) -> set[str]:
    """Inodes of the TCP sockets that a process has open."""
    held: set[str] = set()
    for descriptor in (PROC / str(pid) / "fd").iterdir():
        try:
            held.add(os.readlink(descriptor))
        except OSError:  # closed in between
            continue
    known: set[str] = set()
    for table in ("tcp", "tcp6"):
        lines = (Path("/proc/net") / table).read_text().splitlines()[1:]
        known |= {f"socket:[{line.split()[9]}]" for line in lines}
    return held & known

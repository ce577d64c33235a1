"""The supervisor: replaces what dies, and holds no connection that could die itself."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
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


# Under systemd


def test_systemd_is_told_what_a_worker_does(postgres_lab: FaultLab, tmp_path: Path) -> None:
    """Given a unit with Type=notify and a watchdog: ready once it is registered, then signs of life, then its stop."""
    lab, told = postgres_lab, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(tmp_path / "notify"))
    told.settimeout(30)
    manager = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}

    worker = lab.start(**manager)
    heard = [told.recv(100) for _ in range(3)]
    while b"READY=1" not in heard:
        heard.append(told.recv(100))
    assert lab.row(worker) is not None
    assert set(heard) == {b"READY=1", b"WATCHDOG=1"}

    worker.signal(signal.SIGTERM)
    while told.recv(100) != b"STOPPING=1":
        pass
    assert worker.wait() == 0

    lab.start("--processes", "2", **manager)
    while told.recv(100) != b"READY=1":
        pass
    lab.until(lambda: sum(not row.dead for row in lab.workers()) == 2, "both children are registered")
    lab.processes[-1].kill()  # its children do not speak for it: there is silence after its end
    assert falls_silent(told)


def test_a_worker_whose_loop_stands_still_gives_no_sign(postgres_lab: FaultLab, tmp_path: Path) -> None:
    lab, told = postgres_lab, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(tmp_path / "notify"))
    lab.ready(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="300000")
    (job,) = lab.enqueue("block", seconds=600.0)
    lab.until(lambda: bool(lab.begins(job)), "the handler holds the loop")

    assert falls_silent(told)


def test_a_worker_is_not_ready_while_its_database_is_away(postgres_lab: FaultLab, tmp_path: Path) -> None:
    """Given a port that nothing listens on, then systemd hears that the worker is alive, and not that it is ready."""
    lab, told, reserved = postgres_lab, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), socket.socket()
    told.bind(str(tmp_path / "notify"))
    told.settimeout(30)
    reserved.bind(("127.0.0.1", 0))
    manager = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}

    url = f"postgresql://127.0.0.1:{reserved.getsockname()[1]}/shop"
    worker = lab.start(**manager, WINDLASS_URL=url)
    lab.until(lambda: "the database is away" in worker.output(), "the first try failed")
    assert {told.recv(100) for _ in range(5)} == {b"WATCHDOG=1"}

    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def falls_silent(told: socket.socket) -> bool:
    """Whether nothing is heard any more for as long as five signs take; a few may still be on their way."""
    told.settimeout(0.5)
    with suppress(TimeoutError):
        return not [told.recv(100) for _ in range(50)]
    return True
